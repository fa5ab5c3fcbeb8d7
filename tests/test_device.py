"""What torch's own answers become, with cards that it only believes in."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from gpubench.errors import UserError
from gpubench.hardware.advice import Card, of_torch
from gpubench.hardware.environment import devices_of
from gpubench.runner.devices import choose_devices
from gpubench.training import device

CUDNN_REFUSES = "cuDNN version 92600 is not compatible with devices with SM < 7.5. Please install another"


@pytest.fixture
def cards(monkeypatch):
    """Makes torch 2.15 for CUDA 13 see cards of these names and capabilities."""

    def see(*cards):
        known = [
            SimpleNamespace(
                name=name,
                major=major,
                minor=minor,
                total_memory=11 << 30,
                uuid=f"uuid-{name}",
                is_integrated="GB10" in name,
            )
            for name, major, minor in cards
        ]
        oldest = min((card.major, card.minor) for card in known)

        def version():
            if oldest < (7, 5):
                raise RuntimeError(CUDNN_REFUSES)
            return 92600

        monkeypatch.setattr(torch.version, "cuda", "13.2")
        monkeypatch.setattr(torch.backends.cudnn, "version", version)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda"))
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: len(known))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: known[index])
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
        monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
        zeros = torch.zeros
        monkeypatch.setattr(torch, "zeros", lambda *size, **_: zeros(*size))
        return device.describe()

    return see


@pytest.mark.parametrize(("name", "capability"), [("GTX 1080 Ti", (6, 1)), ("V100", (7, 0))])
def test_a_card_that_cudnn_refuses_is_described_and_told_its_build(cards, name, capability):
    facts = cards((name, *capability))
    (fix,) = [result for result in of_torch(facts) if result.level == "fix"]
    assert f"no kernels for sm_{capability[0]}{capability[1]}" in fix.text
    assert "whl/cu126" in fix.advice
    assert CUDNN_REFUSES in facts["devices"][0]["problem"]
    assert facts["devices"][-1]["kind"] == "cpu"


def test_what_is_said_of_cards_in_order_and_old_ones(cards):
    (spark, cpu) = devices_of(cards(("NVIDIA GB10", 12, 1)))
    assert spark.shares_memory
    assert cpu.shares_memory
    assert not devices_of(cards(("RTX 3090", 8, 6)))[0].shares_memory
    facts = cards(("RTX 2080 Ti", 7, 5))
    assert facts["cudnn"] == "92600"
    assert facts["devices"][0]["problem"] == ""
    facts = cards(("RTX 3090", 8, 6), ("GTX 1080 Ti", 6, 1))
    new, old = [result for result in of_torch(facts) if result.level == "fix"]
    assert new.text.startswith("cuda:0: RTX 3090")
    assert new.advice.endswith("export CUDA_VISIBLE_DEVICES=GPU-uuid-RTX 3090")
    assert "no kernels for sm_61" in old.text


TOO_OLD = "The NVIDIA driver on your system is too old (found version 12040)."
RTX_3090 = Card("RTX 3090", "550.1", "12.4")


@pytest.fixture
def unseen(monkeypatch):
    """Describes a machine with this card of the driver's, of which torch says what `refusal` is."""

    def describe(card, refusal):
        def init():
            raise RuntimeError(f"{refusal}\nmore of it")

        monkeypatch.setattr(torch.version, "cuda", "13.2")
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: None)
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
        monkeypatch.setattr(torch.cuda, "init", init)
        monkeypatch.setattr(device, "nvidia_cards", lambda: [card] if card else [], raising=False)
        return device.describe()

    return describe


@pytest.mark.parametrize("wish", ["auto", "all", "cuda"])
def test_a_card_that_torch_cannot_use_is_never_replaced_by_the_cpu(unseen, monkeypatch, wish):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices = devices_of(unseen(RTX_3090, TOO_OLD))
    with pytest.raises(UserError) as refused:
        choose_devices(wish, devices)
    for words in ("RTX 3090", TOO_OLD, "install a newer NVIDIA driver", "--device cpu"):
        assert words in str(refused.value)
    assert [each.device for each in choose_devices("cpu", devices)] == ["cpu"]


def test_cards_that_are_missing_have_torchs_own_words(unseen):
    (fix,) = [result for result in of_torch(unseen(RTX_3090, TOO_OLD), [RTX_3090]) if result.level == "fix"]
    assert TOO_OLD in fix.text
    assert "newer NVIDIA driver" in fix.advice
    assert [each.device for each in choose_devices("auto", devices_of(unseen(None, "no driver")))] == ["cpu"]


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_cards_that_were_hidden_on_purpose_are_not_missed(unseen, monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert [each.device for each in choose_devices("auto", devices_of(unseen(RTX_3090, "")))] == ["cpu"]


def test_a_torch_without_accelerators_has_a_cpu(monkeypatch):
    """torch 2.6 with CUDA on a machine without a card."""

    def refuse():
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", refuse)
    assert [each["kind"] for each in device.describe()["devices"]] == ["cpu"]
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert [each["kind"] for each in device.describe()["devices"]] == ["cpu"]


def test_the_watched_steps_are_in_neither_peak_nor_retries(monkeypatch):
    peak, retries = [0], [0]

    def allocate(most, failed=0):
        peak[0], retries[0] = max(peak[0], most), retries[0] + failed

    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: peak.__setitem__(0, 0))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: peak[0])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: {"num_alloc_retries": retries[0]})
    memory = device.MemoryUse(torch.device("cuda:0"))
    allocate(900, failed=3)  # libraries try algorithms in the first lap
    memory.trained()
    allocate(500)
    memory.resting()
    allocate(800, failed=2)
    memory.watched()
    allocate(400)
    assert (memory.peak_bytes, memory.retries, memory.resting_bytes) == (500, 0, 1)
    allocate(600, failed=1)
    assert (memory.peak_bytes, memory.retries) == (600, 1)


@pytest.fixture
def share_of(monkeypatch):
    """Opens a card of 10 GiB with a limit in GiB; returns the share of its memory that torch may use."""

    def opened(limit, release="6.8.0-90-generic", free=6.5):
        shares, total = [], 10 << 30

        def mem_get_info(of_card):
            if free is None:
                raise RuntimeError("CUDA error: operation not supported")
            return int(free * 2**30), total

        zeros = torch.zeros
        with monkeypatch.context() as patched:
            patched.setattr("platform.release", lambda: release)
            patched.setattr(torch, "zeros", lambda *size, **_: zeros(*size))
            patched.setattr(torch.accelerator, "set_device_index", lambda index: None)
            patched.setattr(torch.cuda, "get_device_properties", lambda of_card: SimpleNamespace(total_memory=total))
            patched.setattr(torch.cuda, "mem_get_info", mem_get_info)
            patched.setattr(torch.cuda, "memory_reserved", lambda of_card: 0)
            patched.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, of_card: shares.append(share))
            device.open_device("cuda:0", limit and limit << 30)
        return shares

    return opened


def test_a_limit_includes_the_context(share_of):
    assert share_of(4) == [pytest.approx(0.3)]
    assert share_of(4, free=9.5) == [pytest.approx(0.35)]
    assert share_of(None) == []
    assert share_of(4, free=None) == [pytest.approx(0.4)]


@pytest.mark.parametrize(("limit", "share"), [(None, 0.55), (4, 0.3), (9, 0.55)])
def test_a_trial_under_wsl_leaves_a_tenth_free_because_more_is_the_hosts_memory(share_of, limit, share):
    assert share_of(limit, release="6.6.87.2-microsoft-standard-WSL2") == [pytest.approx(share)]
