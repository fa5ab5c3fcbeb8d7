"""`gpubench run` from beginning to end: options, then a session, then trial after trial, each with its row."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rich.console import Console

from gpubench.console import Screen
from gpubench.hardware import environment as env
from gpubench.hardware import host
from gpubench.rows.row import Row
from gpubench.rows.write import RowsFile, append
from gpubench.runner import scratch
from gpubench.runner.batch.batches import Batches
from gpubench.runner.cluster import slurm
from gpubench.runner.cluster.machines import run_as_one_of
from gpubench.runner.cluster.nodes import NodeLost, Nodes
from gpubench.runner.measure import Answer, Measure
from gpubench.runner.options import SAMPLED_REPEATS, Options
from gpubench.runner.process import RunChild, describe, run_child
from gpubench.runner.progress import TrialProgress
from gpubench.runner.record import Setting, row_of
from gpubench.runner.resume import Earlier, terms_of
from gpubench.runner.rounds import Rounds
from gpubench.runner.session import Session, open_session, print_plan
from gpubench.runner.signals import INTERRUPTED, STOPPED, Interrupts
from gpubench.runner.summary import RunSummary
from gpubench.runner.warm_up import WarmUp
from gpubench.suite import files
from gpubench.suite.trial import GOOD, Measurement, Trial

SOME_FAILED = 4


def run(
    options: Options,
    console: Console | None = None,
    run_child: RunChild = run_child,
) -> RunSummary:
    """Measure what `options` ask for and append a row per trial; returns what was done.

    Everything that touches a device goes through `run_child`, one fresh process a call.
    """
    console = console or Screen(stderr=True)
    scratch.sweep()
    with Interrupts() as interrupts:
        try:
            loaded = files.find_all(options.suites)
            facts = describe(run_child) if any(each.suite.torch for each in loaded) else env.cpu_facts()
            session = open_session(options, loaded, facts, console)
            if options.dry_run:
                return show(session, console, run_child)
            if options.nodes == 1:
                return lead(session, console, run_child, interrupts)
            terms = terms_of(session.cases, list(session.devices.values()), session.environment)
            with Nodes(options.nodes, options.rendezvous, terms, options.time_limit_seconds) as nodes:
                return run_as_one_of(
                    nodes, session, console, run_child, lambda child: lead(session, console, child, interrupts)
                )
        except KeyboardInterrupt:
            console.print(
                "\nstopped before the first trial: no row was added; give the same command again", markup=False
            )
            return RunSummary(INTERRUPTED)


def show(session: Session, console: Console, run_child: RunChild) -> RunSummary:
    """Print what a run would do; measures nothing."""
    run = Run(session, read_earlier(session, console), run_child)
    print_plan(session.cases, session.options, session.path, run.rounds.outlook())
    return RunSummary(0)


def lead(
    session: Session,
    console: Console,
    run_child: RunChild,
    interrupts: Interrupts | None = None,
) -> RunSummary:
    """Open the file, continue an earlier run, and do the trials; returns what was done.

    The file is this run's own until it ends. Raises Rescued where somebody took it away or the disk is full.
    """
    with RowsFile(session.path) as file:
        for note in file.notes:
            console.print(note, markup=False, soft_wrap=True)
        earlier = read_earlier(session, console)
        run = Run(look_at_host(session, console), earlier, run_child, interrupts)
        if plan_file := slurm.plan_file():
            append(plan_file, run.written_off(run.rounds.left, Measurement("interrupted", "planned")))
        if note := what_it_can_decide(session):
            console.print(note, markup=False)
        for line in () if session.options.judged else run.rounds.outlook():
            console.print(line, markup=False, soft_wrap=True)
        return run.to_the_end(file, console)


def read_earlier(session: Session, console: Console) -> Earlier | None:
    """The rows of an earlier run, where the file has some; raises UserError where they do not belong to this one."""
    if not session.path.exists() or session.path.stat().st_size == 0:
        return None
    earlier = Earlier(session.path)
    for problem in earlier.problems:
        console.print(problem, markup=False)
    states = {device: session.card_state(device) for device in session.devices}
    earlier.check(session.cases, session.options, session.devices, states, session.environment)
    return earlier


def look_at_host(session: Session, console: Console) -> Session:
    """The session with how fast this host is right now; says what will show in the times."""
    kinds = {device.kind for device in session.devices.values()}
    load = host.cpu_load(session.environment.cpu_count) if "cpu" in kinds else None
    environment = replace(session.environment, host_reference_seconds=host.reference_seconds())
    # The load average would count a run of ours that has just ended.
    if load and (others := load.others()) > host.SHARED_CPU:
        console.print(f"other programs take {others:.0%} of the CPUs, and times will show it", markup=False)
    if environment.switches and "cuda" in kinds:
        console.print(f"set here, and figures will show it: {environment.switches}", markup=False)
    return replace(session, environment=environment)


def what_it_can_decide(session: Session) -> str:
    """What the run's trials are too few for; empty where they are enough."""
    options = session.options
    if options.judged:
        return ""
    if options.mode == "quick":
        return "a first look: three timed steps of a case at most, so its projection is rough"
    if len(session.cases) > 1 and options.rounds < SAMPLED_REPEATS:
        return (
            f"{options.rounds} trial(s) per case give ratios but no verdict;"
            f" --repeats {SAMPLED_REPEATS} or more can decide"
        )
    return ""


class Run:
    """The trials of a session, from the first to the last, and the rows that they leave.

    Args:
        session: what stays the same.
        earlier: the rows of an earlier run in the same file, or None.
        run_child: starts each process.
        interrupts: whether somebody stopped the run.
    """

    def __init__(
        self, session: Session, earlier: Earlier | None, run_child: RunChild, interrupts: Interrupts | None = None
    ) -> None:
        self._session, self._earlier = session, earlier
        self._interrupts = interrupts or Interrupts()
        self._progress = TrialProgress(rates_only=session.options.judged)
        self._warm_up = WarmUp(session, run_child, self._progress.say)
        self._batches = Batches(
            session.suites,
            session.devices,
            session.options,
            known=earlier.batch_of if earlier else lambda case: None,
            measure=Measure(session, run_child, self._progress),
            say=self._progress.say,
        )
        self.rounds = Rounds(session, earlier, self._batches, self._progress, self._interrupts.check)
        self._written: set[str] = set()
        """Sessions of the rows that were written."""

    def to_the_end(self, file: RowsFile, console: Console) -> RunSummary:
        """Do every trial; Ctrl-C keeps what is finished and writes the rest as interrupted."""
        statuses = self.rounds.statuses
        try:
            with self._progress:
                for trial in self.rounds:
                    self._do(trial, file)
        except (KeyboardInterrupt, NodeLost) as stop:
            return self._stopped(stop, file, console)
        good = GOOD.issuperset([*self.rounds.statuses_before, *statuses])
        return RunSummary(0 if good else SOME_FAILED, self._session.path, frozenset(self._written))

    def _do(self, trial: Trial, file: RowsFile) -> None:
        """One trial, and its row."""
        case = trial.case
        if not case.refusal:
            self._warm_up.before(case, self.rounds.to_come, searched=self._batches.to_confirm(case))
        self._progress.start(case.label, self._session.suites[case.suite].suite.unit)
        started = _now()
        trial, answer = self._batches.answer_to(trial)
        row = self._row_of(trial, answer, started)
        with self._interrupts.held():
            file.append([row])  # per row: a killed run loses nothing
            self._written.add(row.session)
            self.rounds.finished(trial, row)

    def _stopped(self, stop: BaseException, file: RowsFile, console: Console) -> RunSummary:
        """Write a row for each trial that was not done, and say how to continue."""
        path, lost = self._session.path, isinstance(stop, NodeLost)
        rest = self.rounds.unfinished()
        named = "" if path == self._session.options.out else f" with --out {path}"
        done = f"{self.rounds.tally(rest)} are in {path}; the same command{named} goes on"
        with self._interrupts.held():
            file.append(self.written_off(rest, Measurement("failed" if lost else "interrupted", str(stop) or STOPPED)))
        console.print(f"{stop}; {done}" if lost else f"\nstopped: {done}", markup=False, soft_wrap=True)
        return RunSummary(SOME_FAILED if lost else INTERRUPTED, path)

    def written_off(self, trials: Sequence[Trial], why: Measurement) -> list[Row]:
        """A row for each trial that will not run."""
        now = _now()
        return [self._row_of(trial, Answer(why), now) for trial in trials]

    def _row_of(self, trial: Trial, answer: Answer, started: str) -> Row:
        session, earlier, case = self._session, self._earlier, trial.case
        setting = Setting(
            device=session.devices[case.device],
            card=session.card_state(case.device),
            environment=session.environment,
            session=session.options.session or (earlier and earlier.session_of(case)) or session.id,
            until=session.options.until,
            band=session.suites[case.suite].suite.projected_over_full,
            peak=self._warm_up.peak_of(case),
        )
        return row_of(trial, answer.measurement, setting, started=started, startup_seconds=answer.startup_seconds)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
