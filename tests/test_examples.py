"""The example files for SkyPilot and Kubernetes have the keys that these need, and agree with themselves."""

import shlex
from pathlib import Path

import yaml
from typer.main import get_command

from gpubench.cli.app import app

EXAMPLES = Path(__file__).parents[1] / "examples"


def documents(name):
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def processes_and_nodes(script):
    """What the script's `gpubench run` is asked for; a usage error if gpubench lacks one of its options."""
    words = shlex.split(script.replace("\\\n", "").partition("gpubench run ")[2])
    params = get_command(app).commands["run"].make_context("gpubench run", words).params
    return params["processes"], params["nodes"]


def test_the_task_of_skypilot_has_known_keys_a_limit_on_cost_and_a_secret():
    (task,) = documents("skypilot.yaml")
    assert set(task) == {"name", "num_nodes", "workdir", "resources", "secrets", "setup", "run"}
    assert set(task["resources"]) == {"accelerators", "max_hourly_cost", "use_spot", "autostop"}
    assert task["resources"]["autostop"]["down"] is True
    assert task["secrets"] == {"GPUBENCH_SECRET": None}
    assert processes_and_nodes(task["run"]) == ("8", task["num_nodes"])


def test_the_jobset_has_a_deadline_a_secret_and_the_volumes_that_it_mounts():
    claim, jobset = documents("jobset.yaml")
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert set(jobset["spec"]) == {"ttlSecondsAfterFinished", "network", "replicatedJobs"}
    job = jobset["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["restartPolicy"], job["template"]["spec"]["backoffLimit"]) == ("Never", 0)
    assert pod["activeDeadlineSeconds"] > 0
    assert [variable["name"] for variable in container["env"]] == ["GPUBENCH_SECRET"]
    assert "secretKeyRef" in container["env"][0]["valueFrom"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    name = jobset["metadata"]["name"]
    assert f"--rendezvous {name}-{job['name']}-0-0.{name}:29400" in container["args"][0]
    assert processes_and_nodes(container["args"][0]) == ("8", job["template"]["spec"]["parallelism"])
