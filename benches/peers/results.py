"""Results of settings, and the file that joins runs."""

import dataclasses
import json

from cases import CASES
from measure import Measured
from settings import SETTINGS


class Result:
    """All rounds of a setting of a case. `reason` is why it has none on this machine."""

    def __init__(self, case, setting, reason=None):
        self.case, self.setting, self.reason = case, setting, reason
        self.rounds = []

    def seconds(self):
        """Seconds of all measured steps."""
        return [seconds for measured in self.rounds for seconds in measured.counted]

    def losses(self):
        """The losses of the longest round."""
        return max((measured.losses for measured in self.rounds), key=len, default=[])

    def difference(self, expected):
        """The largest difference of a loss from the expected ones, over all steps of all rounds."""
        pairs = [pair for measured in self.rounds for pair in zip(measured.losses, expected)]
        distances = [abs(loss - other) for loss, other in pairs]
        return max(distance if distance == distance else float("inf") for distance in distances)


def save(path, machine, results):
    """Writes results to a file that `load` reads. `machine` is the description of what they are of."""
    rows = [
        dict(
            case=result.case.name,
            setting=result.setting.name,
            reason=result.reason,
            rounds=[dataclasses.asdict(measured) for measured in result.rounds],
        )
        for result in results
    ]
    with open(path, "w") as file:
        json.dump(dict(machine=machine, results=rows), file, indent=1)


def load(path, machine):
    """The results in a file, of cases and settings that there still are. They must be of the same machine and versions."""
    cases, settings = {case.name: case for case in CASES}, {setting.name: setting for setting in SETTINGS}
    with open(path) as file:
        stored = json.load(file)
    if stored["machine"] != machine:
        raise SystemExit(f"{path} is of {stored['machine']}, but this is {machine}")
    results = []
    for row in stored["results"]:
        if row["case"] in cases and row["setting"] in settings:
            results.append(Result(cases[row["case"]], settings[row["setting"]], row["reason"]))
            results[-1].rounds = [Measured(**measured) for measured in row["rounds"]]
    return results


def merged(results):
    """Results of several runs in the order of cases and settings; of a setting the rounds of all runs."""
    found = {}
    for result in results:
        same = found.setdefault((result.case.name, result.setting.name), Result(result.case, result.setting))
        same.reason = result.reason
        same.rounds += result.rounds
    order = [(case.name, setting.name) for case in CASES for setting in SETTINGS]
    present = [result for result in found.values() if result.reason or result.rounds]
    return sorted(present, key=lambda result: order.index((result.case.name, result.setting.name)))
