"""The rules, one file each: a file declares its `RULE`, and nothing else lists it (`diagnosis.rule`)."""
