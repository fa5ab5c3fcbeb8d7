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


@pytest.mark.parametrize("name", ["skypilot.yaml", "jobset.yaml"])
def test_gpubench_has_the_options_of_the_run(name):
    document = documents(name)[-1]
    script = document["run"] if name == "skypilot.yaml" else pod_of(document)["containers"][0]["args"][0]
    words = shlex.split(script.replace("\\\n", "").partition("gpubench run ")[2])
    context = get_command(app).commands["run"].make_context("gpubench run", words)
    assert (context.params["processes"], context.params["nodes"]) == ("8", 2)
