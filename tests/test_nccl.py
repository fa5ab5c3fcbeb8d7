"""NCCL's own log, in the words of its source (NVIDIA/nccl, src/enqueue.cc and src/transport/net.cc)."""

from facts import lacking

from gpubench.hardware.interconnect import nccl_facts

LOG = """
h:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
h:1:2 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA
"""


def test_version_and_direct_exchange_are_read(tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(LOG)
    assert lacking(nccl_facts(log), "NCCL 2.27.3+cuda12.9", "GPUDirect RDMA used") == []
    log.write_text(LOG.replace("/GDRDMA", ""))
    assert nccl_facts(log).endswith("GPUDirect RDMA not used")


def test_no_log_tells_nothing(tmp_path):
    assert nccl_facts(tmp_path / "nccl.log") == ""
