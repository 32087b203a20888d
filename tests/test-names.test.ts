import assert from "node:assert/strict";
import { resolve } from "node:path";
import { test } from "node:test";
import { testNames } from "../scripts/test-names.ts";

test("names of tests are listed without running them, those that loops make as well", async () => {
  const files = [
    "conformance/conformance.test.ts",
    "conformance/mechanisms.test.ts",
    "test-names.test.ts",
    "none.test.ts",
  ];
  const [ops, mechanisms, own, missing] = files.map((file) => resolve(import.meta.dirname, file));
  const names = await testNames([ops!, missing!, mechanisms!, own!]);
  assert.ok(names.get(ops!)!.some((name) => /softplus/.test(name)));
  assert.ok(names.get(mechanisms!)!.some((name) => /gated-delta/.test(name)));
  assert.deepEqual(names.get(own!), [
    "names of tests are listed without running them, those that loops make as well",
  ]);
  assert.equal(names.has(missing!), false, "a file that cannot be imported is not said to be empty");
});
