"""Runs a benchmark: prints caveats (busy CPU, no GPU, quick), runs the trials, writes rows. `cli/run.py` calls it."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from shlex import quote

from gpubench import printed
from gpubench.errors import UserError
from gpubench.hardware import environment as env
from gpubench.hardware import host
from gpubench.printed import Say
from gpubench.rows.row import Row
from gpubench.rows.write import RowsFile
from gpubench.runner.batches import CaseBatches
from gpubench.runner.cases import recipes_of
from gpubench.runner.devices import DeviceLost, lost_device
from gpubench.runner.measure import Measure
from gpubench.runner.measured_peaks import WarmUp
from gpubench.runner.nodes import NodeLost, Nodes, run_as_one_of
from gpubench.runner.options import SAMPLED_REPEATS, Options
from gpubench.runner.process import RunChild, check_imports, describe
from gpubench.runner.progress import TrialProgress
from gpubench.runner.record import Setting, row_of
from gpubench.runner.resume import EarlierRun, terms_of
from gpubench.runner.rounds import Rounds
from gpubench.runner.session import RunSummary, Session, open_session, print_plan
from gpubench.runner.signals import INTERRUPTED, STOPPED, Interrupts
from gpubench.runner.template import Templates
from gpubench.suite import files
from gpubench.suite.trial import GOOD, Measurement, Status, Trial
from gpubench.welch import FEWEST_TRIALS

print_line: Say = partial(printed.say, err=True)
SOME_FAILED = 4
FAILURES = 2
"""A run checks its devices after this many consecutive trials or searches that failed or timed out."""
LOST = frozenset({"failed", "timed_out"})
"""Statuses of trials whose device may be lost."""


def run(options: Options, say: Say = print_line, run_child: RunChild | None = None) -> RunSummary:
    """Run all trials of `options` and append a row for each; returns a summary. Raises UserError.

    Only child processes use a device. `run_child` runs a task in such a process, by default Templates.
    """
    with Interrupts() as interrupts, Templates(options.time_limit_seconds) as templates:
        run_child = run_child or templates
        try:
            user_suites = [name for name in options.suites if name not in files.built_in_names()]
            check_imports(user_suites, options.time_limit_seconds, run_child)
            loaded = files.find_all(options.suites)
            recipes_of(options, loaded)  # an unknown name is an error before torch is imported
            facts = describe(run_child) if any(suite.suite.torch for suite in loaded) else env.cpu_facts()
            session = open_session(options, loaded, facts, say)
            if options.dry_run:
                return show(session, say, run_child, interrupts)
            if options.nodes == 1:
                return lead(session, say, run_child, interrupts)
            terms = terms_of(session.cases, list(session.devices.values()), session.environment)
            with Nodes(options.nodes, options.rendezvous, terms, options.time_limit_seconds) as nodes:
                lead_run = partial(lead, session, say, interrupts=interrupts)
                return run_as_one_of(nodes, session, say, run_child, lead_run)
        except KeyboardInterrupt:
            say("")
            say("stopped before the first trial: no row was added")
            return RunSummary(INTERRUPTED)


def show(session: Session, say: Say, run_child: RunChild, interrupts: Interrupts) -> RunSummary:
    """Print the plan of a run; measures nothing."""
    runner = TrialRunner(session, read_earlier(session, say), run_child, interrupts)
    for line in subject_of(session):
        say(line)
    print_plan(session.cases, session.options, session.path, runner.rounds.outlook())
    return RunSummary(0)


def lead(session: Session, say: Say, run_child: RunChild, interrupts: Interrupts) -> RunSummary:
    """Open the CSV file, resume an earlier run, and run the trials; returns a summary.

    The file is locked until the run ends. Raises UserError if it cannot be used, and Rescued if a row cannot be added.
    """
    with RowsFile(session.path) as file:
        for line in [*file.notes, *subject_of(session)]:
            say(line)
        earlier = read_earlier(session, say)
        runner = TrialRunner(check_host(session, say), earlier, run_child, interrupts)
        for line in [*caveat_of(session), *runner.rounds.outlook()]:
            say(line)
        return runner.run_all(file, say)


def read_earlier(session: Session, say: Say) -> EarlierRun:
    """Return the rows of an earlier run in the file; raises UserError if this run cannot resume it."""
    earlier = EarlierRun(session.path)
    for problem in earlier.problems:
        say(problem)
    states = {device: session.card_state(device) for device in session.devices}
    earlier.check(session.cases, session.options, session.devices, states, session.environment)
    return earlier


def check_host(session: Session, say: Say) -> Session:
    """Return the session with the host's speed and load, and print what will affect the times."""
    kinds = {device.kind for device in session.devices.values()}
    load = host.cpu_load(session.environment.cpu_count) if "cpu" in kinds else None
    environment = replace(session.environment, host_reference_seconds=host.reference_seconds())
    # The load average is not used: it would include a run that has just ended.
    slowdown = load.slowdown() if load else 1.0
    if load and (others := load.others()) > host.SHARED_CPU:
        say(f"The CPU is {others:.0%} busy: results will be slow and noisy.")
    if environment.switches and "cuda" in kinds:
        say(f"environment variables change results: {environment.switches}")
    return replace(session, environment=environment, slowdown=slowdown)


def subject_of(session: Session) -> list[str]:
    """Return the lines that name the devices and what they will train."""
    cards = ", ".join(dict.fromkeys(device.card for device in session.devices.values()))
    models = ", ".join(dict.fromkeys(case.model for case in session.cases))
    running = [case for case in session.cases if not case.refusal] or session.cases
    precisions = ", ".join(dict.fromkeys(case.precision for case in running))
    what = f"{models} in {precisions} ({', '.join(session.suites)})"
    if session.options.device == "auto" and set(session.devices) == {"cpu"}:
        cores = session.environment.cpu_count
        return [f"No GPU found: this measures the CPU ({cards}, {cores} cores), which is far slower.", what]
    return [f"{cards}: {what}"]


def caveat_of(session: Session) -> list[str]:
    """Return a line with the caveat of a run that is quick or has few trials per case; no line for other runs."""
    options = session.options
    if options.mode == "quick":
        unranked = " CPUs are not ranked." * (options.rank and set(session.devices) == {"cpu"})
        return [f"Quick mode: only a few steps per case, so times are rough.{unranked}"]
    if len(session.cases) > 1 and options.rounds < SAMPLED_REPEATS:
        verdicts = "no verdict" if options.rounds < FEWEST_TRIALS else "a verdict only on large ratios"
        return [f"{options.rounds} trial(s) per case: {verdicts}. --repeats {SAMPLED_REPEATS} decides more."]
    return []


class TrialRunner:
    """Runs the trials of a session that an earlier run in the same file has not finished, and writes their rows."""

    def __init__(self, session: Session, earlier: EarlierRun, run_child: RunChild, interrupts: Interrupts) -> None:
        self._session, self._earlier, self._run_child, self._interrupts = session, earlier, run_child, interrupts
        self._progress = TrialProgress()
        self._warm_up = WarmUp(session, run_child, self._progress.say)
        measure = Measure(session, run_child, self._progress)
        self._batches = CaseBatches(session, earlier, measure, self._progress.say)
        self.rounds = Rounds(session, earlier, self._batches, self._progress, self._interrupts.check)
        self._written: set[str] = set()
        """Sessions of the written rows."""
        self._failures = 0
        """Number of consecutive trials that failed or timed out."""

    def run_all(self, file: RowsFile, say: Say) -> RunSummary:
        """Run every trial. A signal or a lost device or machine ends it early, and the same command resumes it."""
        try:
            with self._progress:
                for trial in self.rounds:
                    self._run_one(trial, file)
                before = [status for case in self._session.cases for status in self._earlier.statuses_of(case)]
                good = GOOD.issuperset([*before, *self.rounds.statuses])
                self._interrupts.check()  # a signal may have come with the last row
        except (KeyboardInterrupt, NodeLost, DeviceLost) as stop:
            return self._stopped(stop, file, say)
        return RunSummary(0 if good else SOME_FAILED, self._session.path, frozenset(self._written))

    def _run_one(self, trial: Trial, file: RowsFile) -> None:
        case = trial.case
        if not case.refusal:
            self._warm_up.before(case, self.rounds.planned_cases, searched=self._batches.has_searched)
            self._progress.start(case.label, self._session.suites[case.suite].suite.unit)
        started = _now()
        trial, measurement = self._batches.measured(trial)
        row = self._row_of(trial, measurement, started)
        with self._interrupts.delayed():
            file.append([row])  # one by one: a killed run loses nothing
            self._written.add(row.session)
            self.rounds.finished(trial, row)
        if not case.refusal or row.status in LOST:
            self._check_devices(row.status)

    def _check_devices(self, status: str) -> None:
        """Raise DeviceLost if the last FAILURES trials failed and a device is lost; `status` is the last trial's."""
        self._failures = self._failures + 1 if status in LOST else 0
        devices = self._session.devices.values()
        if self._failures < FAILURES or all(device.kind == "cpu" for device in devices):
            return
        self._failures = 0
        try:
            lost = lost_device(devices, env.devices_of(describe(self._run_child)))
        except UserError as error:
            lost = str(error)
        if lost:
            raise DeviceLost(lost)

    def _stopped(self, stop: BaseException, file: RowsFile, say: Say) -> RunSummary:
        """Write a row for each trial that `Rounds.unfinished` returns, and print how to resume."""
        self._interrupts.ignore()
        path, lost = self._session.path, not isinstance(stop, KeyboardInterrupt)
        rest = self.rounds.unfinished()
        option = "" if path == self._session.options.out else f" with --out {quote(str(path))}"
        done = f"{self.rounds.tally()} finished, in {path}; the same command{option} resumes"
        status: Status = "failed" if isinstance(stop, NodeLost) else "interrupted"
        why, now = Measurement(status, str(stop) or STOPPED), _now()
        file.append([self._row_of(trial, why, now) for trial in rest])
        say(f"{stop}; {done}" if lost else f"stopped: {done}")
        return RunSummary(SOME_FAILED if lost else INTERRUPTED, path)

    def _row_of(self, trial: Trial, measurement: Measurement, started: str) -> Row:
        session, earlier, case = self._session, self._earlier, trial.case
        setting = Setting(
            device=session.devices[case.device],
            card=session.card_state(case.device),
            environment=session.environment,
            session=session.options.session or earlier.session_of(case) or session.id,
            until=session.options.until,
            projection_range=session.suites[case.suite].suite.projected_over_full,
            peak=self._warm_up.peak_of(case),
        )
        return row_of(trial, measurement, setting, started=started)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
