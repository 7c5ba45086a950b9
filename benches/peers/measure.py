"""Runs a setting in a process of its own, within a time limit, and reads its steps."""

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import batches
from cases import FOLDER, OPTIMIZER
from settings import JAX, MESHWRIGHT


@dataclass
class Measured:
    """Steps of one process: losses and seconds of all, in which the first `warm_up` do not count.

    `failure` is the reason that it did not end well, `is_late` true if it was ended after `limit` seconds.
    """

    warm_up: int
    limit: float
    losses: list = field(default_factory=list)
    seconds: list = field(default_factory=list)
    peak_bytes: int = 0
    failure: str = ""
    is_late: bool = False
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())

    @property
    def counted(self):
        """Seconds of the steps after warm-up."""
        return self.seconds[self.warm_up :]


@dataclass
class Bench:
    """Paths and options that all processes share."""

    binary: str
    folder: str
    threads: int
    warm_up: int
    limit: float

    @property
    def text(self):
        """The file of the training text."""
        return os.path.join(self.folder, "text.txt")

    def train(self, case, out, steps, lr=OPTIMIZER["lr"], more=()):
        """The command that trains a case with Meshwright: no warm-up, a constant rate, and the shortest validation."""
        options = {
            "data": self.text,
            "valid-fraction": batches.VALID_FRACTION,
            "seed": batches.SEED,
            "steps": steps,
            "seq": case.seq,
            "global-batch": case.batch,
            "lr": lr,
            "min-lr": lr,
            "warmup": 0,
            "weight-decay": OPTIMIZER["weight_decay"],
            "clip": OPTIMIZER["clip"],
            "eval-every": 0,
            "final-eval-batches": 1,
            "out": out,
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        return [self.binary, "train", case.model, *flags, *more]

    def checkpoint(self, case):
        """The checkpoint with the initial weights, which is made on first use: a step with a rate of 0 changes none."""
        run = os.path.join(self.folder, case.name, "initial")
        path = os.path.join(run, "step-00000001")
        if not os.path.exists(path):
            command = self.train(case, run, steps=1, lr=0, more=["--save-every=1"])
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"no checkpoint of {case.name}: {last_line(done.stderr)}")
        return path

    def measure(self, case, setting, steps):
        """Measures a setting once: steps of warm-up, then so many."""
        steps += self.warm_up
        out = os.path.join(self.folder, case.name, "run")
        os.makedirs(out, exist_ok=True)
        metrics = os.path.join(out, "metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        if setting.program == MESHWRIGHT:
            more = [f"--parallel=dp={setting.devices},zero={setting.zero}", f"--precision={setting.precision}"]
            command = self.train(case, out, steps, more=more)
        else:
            command = self.peer(case, setting, steps, out, metrics)
        measured = Measured(self.warm_up, self.limit)
        run(measured, command, self.environment(setting), os.path.join(out, "errors.txt"))
        for record in records(metrics):
            measured.losses.append(record["loss"])
            measured.seconds.append(record["step_time_s"])
        return measured

    def peer(self, case, setting, steps, out, metrics):
        """The command of a peer, after its job is written."""
        job = dict(
            config_path=case.config,
            checkpoint=self.checkpoint(case),
            text=self.text,
            metrics=metrics,
            seq=case.seq,
            batch=case.batch,
            steps=steps,
            threads=self.threads,
            precision=setting.precision,
            options=setting.options,
            optimizer=OPTIMIZER,
        )
        path = os.path.join(out, "job.json")
        with open(path, "w") as file:
            json.dump(job, file)
        script = "jax_peer.py" if setting.program == JAX else "torch_peer.py"
        return [sys.executable, os.path.join(FOLDER, script), path]

    def environment(self, setting):
        """The environment of a process: the threads of all libraries, and what the setting adds."""
        threads = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        return {**os.environ, **threads, "JAX_PLATFORMS": "cpu", **setting.environment}


def run(measured, command, environment, errors):
    """Runs a command to its end or to the limit. The peak of memory is of the process, or of a child that is larger."""
    with open(errors, "w+") as stderr:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True
        )
        try:
            status, usage, measured.is_late = wait(process, measured.limit)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        stderr.seek(0)
        failure = last_line(stderr.read()) or f"exit status {process.returncode}"
    measured.peak_bytes = usage.ru_maxrss * 1024
    measured.failure = failure if process.returncode and not measured.is_late else ""


def wait(process, limit):
    """Status and usage of a process that has ended, and true if it had to be ended at the limit."""
    end, is_late = time.monotonic() + limit, False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            return status, usage, is_late
        if not is_late and time.monotonic() > end:
            os.killpg(process.pid, signal.SIGKILL)
            is_late = True
        time.sleep(0.1)


def records(path):
    """Complete records of steps in a file."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    return [line for line in lines if "step_time_s" in line]


def last_line(text):
    """The line of an error: the last one that is not of a stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("    @")]
    errors = [line for line in lines if "error" in line.lower() or "unknown flag" in line.lower()]
    return (errors or lines or [""])[-1].removeprefix("error: ")[:200]
