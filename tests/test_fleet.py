"""Fleet files: what each says to its engine, that no name breaks out of it, and a round trip with a stand-in `sky`."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gpubench.cli.app import app
from gpubench.errors import UserError
from gpubench.interop import fleet
from gpubench.interop.fleet import WHEEL, Fleet
from gpubench.rows.read import load

ROOT = Path(__file__).parents[1]
RUN = ("--suite", "resnet", "--precision", "both")


def made(folder, engine="skypilot", cards=("H100",), run_options=RUN, gpus=1, nodes=1, cost=5.0):
    """The documents of each file, by its path in the folder, and the next steps."""
    lines = fleet.write(Fleet(engine, cards, run_options, gpus, nodes, cost, max_hourly=4.0), folder)
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.yaml")}
    return {name: list(yaml.safe_load_all(path.read_text())) for name, path in files.items()}, lines


def test_a_task_of_skypilot_caps_its_cost_and_ends_itself(tmp_path):
    files, _ = made(tmp_path, cards=("H100", "A100-80GB"), gpus=8, run_options=("--processes", "8"))
    assert sorted(files) == ["a100-80gb.yaml", "h100.yaml"]
    (task,) = files["a100-80gb.yaml"]
    assert task["resources"] == {
        "accelerators": "A100-80GB:8",
        "max_hourly_cost": 4.0,
        "use_spot": False,
        "autostop": {"idle_minutes": 10, "down": True, "wait_for": "jobs"},
    }
    assert task["file_mounts"] == {f"~/{WHEEL}": str(tmp_path / WHEEL)}
    assert f"torch=={version('torch').partition('+')[0]} " in task["setup"]
    # 75 minutes at 4 dollars an hour are 5 dollars; 5 to boot, 15 to install, 10 to copy the rows
    assert shlex.split(task["run"].splitlines()[-1]) == shlex.split(
        "timeout --kill-after=1m 45m gpubench run --processes 8 --out ~/rows/a100-80gb.csv"
    )


def test_machines_of_skypilot_meet_at_the_first_of_its_addresses(tmp_path):
    files, _ = made(tmp_path, nodes=2, run_options=("--nodes", "2"), cost=10.0)
    (task,) = files["h100.yaml"]
    assert task["num_nodes"] == 2
    line = task["run"].splitlines()[-1].replace("gpubench", "echo").partition("45m ")[2]
    environment = {**os.environ, "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5"}
    said = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=True).stdout
    assert "--nodes 2 --rendezvous 10.0.0.4:29400 --out" in said


def test_a_jobset_has_a_card_shared_memory_a_volume_and_a_deadline(tmp_path):
    files, _ = made(tmp_path, "k8s", ("RTX4090", "NVIDIA-A40"))
    assert sorted(files) == ["home/nvidia-a40.yaml", "home/rtx4090.yaml", "nvidia-a40.yaml", "rtx4090.yaml"]
    claim, jobset = files["rtx4090.yaml"]
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["activeDeadlineSeconds"], job["backoffLimit"], pod["restartPolicy"]) == (75 * 60, 0, "Never")
    assert jobset["spec"]["ttlSecondsAfterFinished"] > 0
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    volumes = {volume.pop("name"): volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts["/dev/shm"] == {"emptyDir": {"medium": "Memory"}}
    assert mounts["/rows"] == {"persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert [label_of(files[f"{name}.yaml"][1]) for name in ("rtx4090", "nvidia-a40")] == [
        ["NVIDIA-GeForce-RTX-4090"],
        ["NVIDIA-A40"],
    ]
    (home,) = files["home/rtx4090.yaml"]
    assert home["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def label_of(jobset):
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return term["matchExpressions"][0]["values"]


def test_pods_meet_at_the_first_by_the_names_that_jobset_gives(tmp_path):
    files, _ = made(tmp_path, "k8s", nodes=2, run_options=("--nodes", "2"), cost=10.0)
    claim, jobset = files["h100.yaml"]
    job = jobset["spec"]["replicatedJobs"][0]
    name = jobset["metadata"]["name"]
    leader = f"{name}-{job['name']}-0-0.{name}"
    _, _, wait, run = job["template"]["spec"]["template"]["spec"]["containers"][0]["args"][0].splitlines()
    assert f" {leader};" in wait
    assert f"--rendezvous {leader}:29400 " in run
    assert (job["template"]["spec"]["parallelism"], job["template"]["spec"]["completions"]) == (2, 2)
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize("engine", fleet.ENGINES)
@pytest.mark.parametrize("word", ["a;touch x", "a'b", '"', "$(touch x)", "`touch x`", "$HOME", "$$x", "#", ": |", "\\"])
def test_an_option_stays_one_word_of_the_shell(tmp_path, engine, word):
    files, _ = made(tmp_path, engine, run_options=("--models", word, "--quick"))
    script = files["h100.yaml"][0]["run"] if engine == "skypilot" else script_in_pod(files["h100.yaml"][1])
    assert shlex.split(script.splitlines()[-1].partition("gpubench ")[2])[:4] == ["run", "--models", word, "--quick"]


def script_in_pod(jobset):
    """The script as the container gets it: Kubernetes makes one dollar of two."""
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return pod["containers"][0]["args"][0].replace("$$", "$")


@pytest.mark.parametrize("card", ["H100; rm -rf x", "H100\n", 'H"100', "-h", "H100:8", "a" * 41, "../x", "{}"])
def test_a_card_whose_name_could_break_out_is_refused(card):
    with pytest.raises(UserError, match="--cards"):
        Fleet("k8s", (card,), RUN, 1, 1, 5.0, 4.0)


@pytest.mark.parametrize("word", ["a\nb", "a\x1b[2J", "a\u2028b", "a\x85b", "a\x00"])
def test_an_option_that_cannot_be_printed_is_refused(word):
    with pytest.raises(UserError, match="cannot be printed"):
        Fleet("skypilot", ("H100",), ("--models", word), 1, 1, 5.0, 4.0)


@pytest.mark.parametrize(("engine", "least_cost"), [("skypilot", 35 / 60 * 4), ("k8s", 25 / 60 * 4)])
def test_money_that_buys_no_run_is_refused(engine, least_cost):
    assert Fleet(engine, ("H100",), RUN, 1, 1, least_cost + 0.01, 4.0).run_minutes == 5
    with pytest.raises(UserError, match="are needed"):
        Fleet(engine, ("H100",), RUN, 1, 1, least_cost - 0.1, 4.0)


@pytest.mark.parametrize("dollars", [0.0, -1.0, float("nan"), float("inf")])
def test_money_is_a_number_above_zero(dollars):
    for cost, hourly in ((dollars, 4.0), (5.0, dollars)):
        with pytest.raises(UserError, match="dollars above 0"):
            Fleet("k8s", ("H100",), RUN, 1, 1, cost, hourly)


def test_cards_that_would_share_a_file_are_refused():
    with pytest.raises(UserError, match="each once"):
        Fleet("k8s", ("H100", "h100"), RUN, 1, 1, 5.0, 4.0)


def test_files_of_another_fleet_are_not_started_along_with_it(tmp_path):
    made(tmp_path, cards=("H100", "L4"))
    with pytest.raises(UserError, match=r"l4\.yaml"):
        made(tmp_path, cards=("H100",))


@pytest.mark.parametrize("engine", fleet.ENGINES)
def test_the_page_has_the_printed_commands(tmp_path, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)
    _, lines = made(Path("fleet"), engine, ("H100", "L40S", "RTX4090"))
    page = (ROOT / "docs" / "fleet.md").read_text().splitlines()
    commands = lines[[line.startswith("each card") for line in lines].index(True) + 1 :]
    assert len(commands) > 3
    assert [line for line in commands if not any(there.startswith(line) for there in page)] == []


CAPS = ["fleet", "--cards", "H100", "--engine", "skypilot", "--max-cost", "50", "--max-hourly", "4"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--no-such"], "No such option"),
        (["--repeats", "0"], "--repeats"),
        (["--out", "x.csv"], "the files set it"),
        (["--rendezvous", "a:1"], "the files set it"),
        (["--data", "/mine"], "does not have that folder"),
        (["--suite", "mine.py"], "a rented machine has"),
        (["--processes", "x"], "--processes"),
    ],
)
def test_a_mistake_in_the_runs_options_shows_before_anything_is_rented(tmp_path, monkeypatch, options, why):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*CAPS, "--", *options])
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert why in result.output


def test_cards_and_machines_are_those_of_the_runs_options(tmp_path):
    out = tmp_path / "files"
    result = CliRunner().invoke(app, [*CAPS, "--out", str(out), "--", "--processes", "1,2,4", "--nodes", "2"])
    assert result.exit_code == 0, result.output
    task = yaml.safe_load((out / "h100.yaml").read_text())
    assert (task["resources"]["accelerators"], task["num_nodes"]) == ("H100:4", 2)


SKY = '''#!{python}
"""Stands in for SkyPilot: machines are folders, installing is noted, the task's setup and run are run."""
import os, shutil, subprocess, sys
from pathlib import Path
import yaml

machines = Path(os.environ["MACHINES"])
if sys.argv[1] == "down":
    for name in sys.argv[3:]:
        shutil.rmtree(machines / name)
    sys.exit()
command, yes, flag, name, file = sys.argv[1:]
assert (command, yes, flag) == ("launch", "-y", "-c")
task = yaml.safe_load(Path(file).read_text())
home = machines / name
uv = home / ".local/bin/uv"
uv.parent.mkdir(parents=True)
uv.write_text("#!/bin/sh\\necho $@ >> ~/installed\\nmkdir -p ~/gpubench/bin\\n"
    "printf '#!/bin/sh\\\\nexec {python} -m gpubench \\"$@\\"\\\\n' > ~/gpubench/bin/gpubench\\n"
    "chmod +x ~/gpubench/bin/gpubench\\n")
uv.chmod(0o755)
for target, source in task["file_mounts"].items():
    shutil.copy(source, target.replace("~", str(home)))
for part in ("setup", "run"):
    subprocess.run(["bash", "-c", task[part]], cwd=home, env={{**os.environ, "HOME": str(home)}}, check=True)
'''
RSYNC = '#!/bin/sh\nmkdir -p $3\nexec cp "$MACHINES/$(echo $2 | tr : /)"* $3\n'


@pytest.mark.e2e
def test_from_nothing_to_rows_of_two_cards(tmp_path):
    """The printed commands as they are, on a stand-in that runs each task on this CPU."""
    tools, work = tmp_path / "bin", tmp_path / "work"
    for folder in (tools, work, tmp_path / "machines"):
        folder.mkdir()
    for name, text in {"sky": SKY.format(python=sys.executable), "rsync": RSYNC}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "MACHINES": str(tmp_path / "machines"),
    }

    def typed(line):
        done = subprocess.run(["bash", "-c", line], cwd=work, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    small = "--device cpu --suite reference --models bert-base --set layers=1 --batch 2 --precision fp32 --quick"
    command = f"{shlex.quote(sys.executable)} -m gpubench fleet --cards H100,L40S --engine skypilot --max-cost 5"
    *_, wheel, launch, down, compare = typed(f"{command} --max-hourly 4 -- {small}").splitlines()
    assert wheel == "pip wheel --no-deps -w fleet ."
    (work / "fleet" / WHEEL).write_text("a wheel")
    typed(launch)
    assert f"/{WHEEL} torch==" in (tmp_path / "machines/gpubench-h100/installed").read_text()
    typed(down)
    assert list((tmp_path / "machines").iterdir()) == []
    rows = load([work / "rows"]).frame
    assert (len(rows), set(rows["status"]), set(rows["model"])) == (2, {"ok"}, {"bert-base"})
    assert "bert-base" in typed(compare.replace("gpubench", f"{shlex.quote(sys.executable)} -m gpubench"))
    one, two = sorted((work / "rows").iterdir())
    (work / "all.csv").write_text(one.read_text() + two.read_text().partition("\n")[2])
    assert len(load([work / "all.csv"]).frame) == 2
