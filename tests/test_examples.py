"""The example files for SkyPilot and Kubernetes have the keys that these need, and agree with themselves."""

import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from gpubench.cli.app import app

EXAMPLES = Path(__file__).parents[1] / "examples"


def documents(name):
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def pod_of(jobset):
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


def test_the_task_of_skypilot_has_known_keys_a_limit_on_cost_and_a_secret():
    (task,) = documents("skypilot.yaml")
    assert set(task) == {"name", "num_nodes", "workdir", "resources", "secrets", "setup", "run"}
    assert set(task["resources"]) == {"accelerators", "max_hourly_cost", "use_spot", "autostop"}
    assert task["resources"]["autostop"]["down"] is True
    assert task["secrets"] == {"GPUBENCH_SECRET": None}
    assert f"--nodes {task['num_nodes']} " in task["run"]


def test_the_jobset_has_a_deadline_a_secret_and_the_volumes_that_it_mounts():
    claim, jobset = documents("jobset.yaml")
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert set(jobset["spec"]) == {"ttlSecondsAfterFinished", "network", "replicatedJobs"}
    job = jobset["spec"]["replicatedJobs"][0]
    pod = pod_of(jobset)
    (container,) = pod["containers"]
    assert (pod["restartPolicy"], job["template"]["spec"]["backoffLimit"]) == ("Never", 0)
    assert pod["activeDeadlineSeconds"] > 0
    assert [variable["name"] for variable in container["env"]] == ["GPUBENCH_SECRET"]
    assert "secretKeyRef" in container["env"][0]["valueFrom"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    name = jobset["metadata"]["name"]
    assert f"--rendezvous {name}-{job['name']}-0-0.{name}:29400" in container["args"][0]
    assert f"--nodes {job['template']['spec']['parallelism']} " in container["args"][0]


@pytest.mark.parametrize("name", ["skypilot.yaml", "jobset.yaml"])
def test_gpubench_has_the_options_of_the_run(name):
    document = documents(name)[-1]
    script = document["run"] if name == "skypilot.yaml" else pod_of(document)["containers"][0]["args"][0]
    words = shlex.split(script.replace("\\\n", "").partition("gpubench run ")[2])
    context = get_command(app).commands["run"].make_context("gpubench run", words)
    assert (context.params["processes"], context.params["nodes"]) == ("8", 2)
