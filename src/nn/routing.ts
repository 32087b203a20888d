import type { TypedArray } from "../tensor/dtype.ts";

/** Which tokens visit which experts. */
export interface Choice {
  /** Position in the flat scores `[tokens · experts]` of every visit, token by token, best first. */
  readonly scores: Int32Array;
  /** Visits of each expert: token · perToken + rank, ascending. */
  readonly visits: readonly Int32Array[];
}

/** How experts are chosen. */
export interface RoutingOptions {
  readonly experts: number;
  readonly perToken: number;
  readonly groups?: number;
  readonly groupsPerToken?: number;
}

/**
 * The best experts of every token: those of highest score (plus correction), ties to the smaller number. With groups,
 * only inside the groups whose two best experts add up to most (arXiv 2412.19437v2, section 2.1.2).
 */
export function chooseExperts(
  scores: TypedArray,
  correction: TypedArray | undefined,
  { experts, perToken, groups = 1, groupsPerToken = groups }: RoutingOptions,
): Choice {
  const tokens = scores.length / experts;
  const chosen = new Int32Array(tokens * perToken);
  const visits = Array.from({ length: experts }, (): number[] => []);
  const value = new Float64Array(experts);
  for (let t = 0; t < tokens; t++) {
    for (let e = 0; e < experts; e++) value[e] = scores[t * experts + e]! + (correction?.[e] ?? 0);
    if (groupsPerToken < groups) keepBestGroups(value, groups, groupsPerToken);
    for (let rank = 0; rank < perToken; rank++) {
      let best = -1;
      for (let e = 0; e < experts; e++)
        if (!Number.isNaN(value[e]!) && (best < 0 || value[e]! > value[best]!)) best = e;
      // NaN scores must not stop the run: their weights carry the NaN into the loss, where the trainer sees it.
      if (best < 0) best = rank;
      value[best] = Number.NaN;
      chosen[t * perToken + rank] = t * experts + best;
      visits[best]!.push(t * perToken + rank);
    }
  }
  return { scores: chosen, visits: visits.map((list) => Int32Array.from(list)) };
}

function keepBestGroups(value: Float64Array, groups: number, keep: number): void {
  const size = value.length / groups;
  const strength = Array.from({ length: groups }, (_, group) => {
    const [first = 0, second = 0] = [...value.subarray(group * size, (group + 1) * size)].sort(
      (a, b) => b - a,
    );
    return { group, strength: first + second };
  });
  const best = new Set(
    strength
      .sort((a, b) => b.strength - a.strength || a.group - b.group)
      .slice(0, keep)
      .map((entry) => entry.group),
  );
  for (let e = 0; e < value.length; e++) if (!best.has(Math.floor(e / size))) value[e] = Number.NaN;
}
