import type { Picture } from "../tasks/image-generation/sheet.ts";

/** A picture as the bytes of a PNG file. */
export async function encodePng({ width, height, channels, pixels }: Picture): Promise<Uint8Array> {
  // Fetched when a picture is written: no other command needs it.
  const { encode } = await import("fast-png");
  return encode({ width, height, channels, depth: 8, data: pixels });
}
