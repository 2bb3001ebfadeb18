#!/usr/bin/python3
"""report_schema.py FOLDER: docs/report.schema.json describes the JSON reports in FOLDER, which the cases of analyzer_test have
written: every key, and those that each report has."""
import json
import os
import pathlib
import sys

import jsonschema

SOURCE = pathlib.Path(os.environ.get("FARANDOLE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
# Keys that no report of these cases may lack, so that each part of the schema is checked.
PARTS = {"comparison", "mpi_calls", "launched_in", "launched_by", "gpu_copies", "points",
         "lateness_by_step", "lowest", "to_step", "cpu_percent", "gpu_memory_mib"}


def without_other_keys(schema, bases):
    """The schema for tests: objects have the described keys only. A schema that others extend leaves that to them."""
    if isinstance(schema, list):
        return [without_other_keys(part, bases) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: without_other_keys(value, bases) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema and schema not in bases:
        strict["unevaluatedProperties"] = False
    return strict


def keys_in(value):
    if isinstance(value, dict):
        return set(value).union(*map(keys_in, value.values()))
    return set().union(*map(keys_in, value)) if isinstance(value, list) else set()


def shape_of(value):
    """What the schema sees of a value, except words."""
    if isinstance(value, dict):
        return tuple((key, shape_of(part)) for key, part in sorted(value.items()))
    return frozenset(map(shape_of, value)) if isinstance(value, list) else type(value)


schema = json.loads((SOURCE / "docs" / "report.schema.json").read_text(encoding="utf-8"))
jsonschema.Draft202012Validator.check_schema(schema)
bases = [schema["$defs"]["times"]]
validator = jsonschema.Draft202012Validator(without_other_keys(schema, bases))
reports, shapes, missing = 0, set(), set(PARTS)
for file in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    for line in file.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        reports += 1
        missing -= keys_in(case["report"])
        shape = shape_of(case["report"])
        if shape in shapes:
            continue
        shapes.add(shape)
        error = jsonschema.exceptions.best_match(validator.iter_errors(case["report"]))
        if error:
            sys.exit(f"FAILED: the report of {case['suite']}.{case['test']}: {error.json_path}: {error.message[:2000]}")
assert not missing, f"no report has {', '.join(sorted(missing))}"
assert reports > 20, f"only {reports} reports were found"
print(f"{reports} reports of {len(shapes)} shapes are as the schema says")
