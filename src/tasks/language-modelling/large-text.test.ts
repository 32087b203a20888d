import assert from "node:assert/strict";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { bytes } from "../../text/bytes.ts";
import { tokenizeLarge } from "./large-text.ts";
import { tokenizeText } from "./texts.ts";

test("a corpus that lies in a file is cut as one in memory, and is written once", async () => {
  const folder = await mkdtemp(join(tmpdir(), "linnet-large-"));
  try {
    const text = "the whale and the sea.\n".repeat(500);
    const [path, file] = [join(folder, "book.txt"), join(folder, "text.tokens")];
    await writeFile(path, text);
    const large = await tokenizeLarge(path, bytes(), 0.1, file);
    const whole = tokenizeText(text, bytes(), 0);
    assert.equal(large.train.length + large.heldOut.length, whole.train.length);
    assert.equal(large.heldOut.length, Math.floor(text.length * 0.1));
    assert.equal(large.heldOutBytes, large.heldOut.length);
    assert.deepEqual(large.train.subarray(100, 200), whole.train.subarray(100, 200));
    const { length } = large.train;
    assert.equal(
      large.train.subarray(length - 3, length + 9).length,
      3,
      "what is held out is not trained on",
    );
    large.file.close();
    const { mtimeMs } = await stat(file);
    const again = await tokenizeLarge(join(folder, "gone.txt"), bytes(), 0.1, file);
    assert.equal(again.train.length, length);
    again.file.close();
    assert.equal((await stat(file)).mtimeMs, mtimeMs);
    await assert.rejects(tokenizeLarge(join(folder, "gone.txt"), bytes(), 0.1, join(folder, "x")), {
      code: "E_CONFIG",
    });
  } finally {
    await rm(folder, { recursive: true });
  }
});
