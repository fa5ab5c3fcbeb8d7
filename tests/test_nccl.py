"""NCCL's own log, in the words of its source (NVIDIA/nccl, src/enqueue.cc and src/transport/net.cc)."""

from facts import lacking

from gpubench.hardware.nccl import settings, told

LOG = """
h:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
h:1:2 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA
h:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
h:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
h:1:2 [0] NCCL INFO AllReduce: 26214400 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..7}
"""


def test_what_most_bytes_went_by(tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(LOG)
    assert lacking(told(log), "NCCL 2.27.3+cuda12.9", "RING LL128", "GPUDirect RDMA used") == []
    log.write_text(LOG.replace("/GDRDMA", ""))
    assert told(log).endswith("GPUDirect RDMA not used")


def test_no_log_tells_nothing(tmp_path):
    assert told(tmp_path / "nccl.log") == ""


def test_a_line_for_each_collective_is_written_only_where_nothing_is_judged():
    assert settings("quick")["NCCL_DEBUG_SUBSYS"] == "INIT,NET,TUNING"
    assert settings("sampled")["NCCL_DEBUG_SUBSYS"] == settings("full")["NCCL_DEBUG_SUBSYS"] == "INIT,NET"
