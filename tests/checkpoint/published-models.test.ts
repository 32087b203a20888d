/** The tiny models that other libraries saved, loaded as they are: logits in every form, and greedy continuations. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { modelFolders, verifyModel } from "../../src/checkpoint/verify-models.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { closeTargets, targets } from "../conformance/targets.ts";

after(closeTargets);

const folders = await modelFolders(fileURLToPath(new URL("../golden/models", import.meta.url)));
const devices: (readonly [string, Device])[] = [["host", hostDevice({ dtype: "float64" })]];
for (const target of (await targets()).slice(1)) devices.push([target.name, await target.open(2)]);

test("every format has a model that is loaded", () => {
  assert.equal(folders.length, 13);
});

for (const folder of folders) {
  for (const [name, device] of devices) {
    test(`${folder.split("/").at(-1)} gives the published numbers on ${name}`, async () => {
      const before = device.info().bytes.persistent;
      const rows = await verifyModel(folder, device);
      assert.ok(!("why" in rows), "why" in rows ? rows.why : "");
      assert.ok(rows.length >= 6);
      assert.deepEqual(
        rows.filter(({ ok }) => !ok),
        [],
      );
      assert.equal(device.info().bytes.persistent, before, "memory is back");
    });
  }
}
