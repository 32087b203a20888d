import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Block } from "./heap.ts";
import { classOf, Heap, roundToClass, unit } from "./heap.ts";

const fixed = { extend: () => 0, reclaim: () => false };

test("heap classes grow with the size and rounding stays within a sixteenth", () => {
  for (let units = 1; units < 5000; units++) {
    assert.ok(classOf(units + 1) >= classOf(units), `${units}`);
    const rounded = roundToClass(units);
    assert.ok(rounded >= units && rounded <= units * (1 + 1 / 16), `${units} became ${rounded}`);
    assert.equal(roundToClass(rounded), rounded);
  }
});

test("heap runs never overlap and everything given back melts into one", () => {
  const size = 1 << 20;
  const job = fc.array(fc.tuple(fc.boolean(), fc.nat(40_000), fc.nat(1000)), { maxLength: 200 });
  fc.assert(
    fc.property(job, (steps) => {
      const heap = new Heap(100, 128 + size, fixed);
      const held: Block[] = [];
      for (const [take, bytes, which] of steps) {
        if (!take && held.length > 0) heap.give(held.splice(which % held.length, 1)[0]!);
        const block = take ? heap.take(bytes) : undefined;
        if (block !== undefined) held.push(block);
        assert.ok(block === undefined || (block.bytes >= bytes && block.address % unit === 0));
        const sorted = [...held].sort((a, b) => a.address - b.address);
        for (const [i, run] of sorted.entries()) {
          const next = sorted[i + 1]?.address ?? 128 + size;
          assert.ok(run.address >= 128 && run.address + run.bytes <= next);
        }
        assert.equal(
          heap.used,
          held.reduce((sum, run) => sum + run.bytes, 0),
        );
      }
      for (const block of held) heap.give(block);
      assert.equal(heap.used, 0);
      assert.equal(heap.longest(), size);
      assert.equal(heap.take(size)?.bytes, size);
    }),
    { numRuns: 150 },
  );
});

test("heap asks for what is missing only, and gives up idle runs before it grows", () => {
  const asked: number[] = [];
  let idle: Block | undefined;
  const heap: Heap = new Heap(0, 4096, {
    extend: (bytes) => {
      asked.push(bytes);
      return 4096 + 8192;
    },
    reclaim: () => {
      if (idle === undefined) return false;
      heap.give(idle);
      idle = undefined;
      return true;
    },
  });
  idle = heap.take(4096);
  const first = heap.take(2048);
  assert.equal(first?.address, 0);
  assert.deepEqual(asked, []);
  const second = heap.take(4096);
  assert.deepEqual(asked, [2048]);
  assert.equal(second?.address, 2048);
  assert.equal(heap.take(1 << 20), undefined);
});
