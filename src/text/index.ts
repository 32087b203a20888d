/** Corpora of any size, tokenizers, the byte-pair trainer, and batches of text. */
export * from "./batches.ts";
export { bytePair } from "./byte-pair.ts";
export { trainBytePair } from "./byte-pair-train.ts";
export { bytes } from "./bytes.ts";
export { characters } from "./characters.ts";
export { type ChatMessage, type ChatOptions, type ChatTemplate, chatTemplate } from "./chat-template.ts";
export { type CorpusOptions, readDocuments, readText, type TextPiece } from "./corpus.ts";
export * from "./document-batches.ts";
export { type HuggingFaceOptions, huggingFaceTokenizer, loadTokenizer } from "./hugging-face.ts";
export { holdOut, type LabelledText, type LabelledTexts, readLabelled } from "./labelled.ts";
export { numbers } from "./numbers.ts";
export { openTokens, TokenFile, type TokenSource, writeTokens } from "./token-file.ts";
export type { TextStream, Tokenizer, TokenizerData } from "./tokenizer.ts";
export { tokenizerFrom } from "./tokenizer-from.ts";
