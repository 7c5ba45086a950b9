"""The job of a peer's process: a file says what to train, and each step is reported as `meshwright train` does."""

import json
import sys
import time

import batches
import weights


class Job:
    """What one process measures. Fields are those of the file that `run.py` writes."""

    def __init__(self, path):
        with open(path) as file:
            self.__dict__.update(json.load(file))
        with open(self.config_path) as file:
            self.config = json.load(file)

    def weights(self):
        """The initial parameters, as arrays by name."""
        return weights.of_peers(self.checkpoint)

    def batches(self):
        """Tokens and labels of all steps, as lists."""
        with open(self.text, "rb") as file:
            sampler = batches.Sampler(file.read(), self.seq)
        return [sampler.batch(step, self.batch) for step in range(1, self.steps + 1)]

    def measure(self, data, step):
        """Runs `step` on each batch, and writes its seconds and its loss at once: the process may be ended between steps."""
        with open(self.metrics, "w") as file:
            for number, batch in enumerate(data, 1):
                began = time.perf_counter()
                loss = step(*batch)
                seconds = time.perf_counter() - began
                file.write(json.dumps(dict(step=number, loss=loss, step_time_s=seconds)) + "\n")
                file.flush()


def of_arguments():
    """The job that the command line names."""
    return Job(sys.argv[1])
