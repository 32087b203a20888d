/** Images as sequences: an autoregressive model of pixels, its losses and draws, and sheets of what it draws. */
export {
  compareImages,
  completionsEach,
  type ImageComparisonOptions,
  type ImageData,
  type ImageEvent,
  type ImageRun,
  imagesOfClass,
} from "./experiment.ts";
export { type GenerateImagesOptions, generateImages, PixelStream } from "./generate.ts";
export { imagesFromIdx, readIdx } from "./idx.ts";
export {
  type ChannelOrder,
  chooseImages,
  countOf,
  fromSequences,
  type ImageShape,
  type Images,
  neighbourPlaces,
  sequenceOrder,
  toSequences,
  valuesOf,
} from "./images.ts";
export { mixtureOutput, type PixelOutput, softmaxOutput } from "./output.ts";
export {
  bitsOf,
  drawBatch,
  imageTask,
  type PixelBatch,
  PixelModel,
  type PixelModelConfig,
  type PixelRows,
} from "./pixel-model.ts";
export {
  colourShape,
  greyShape,
  type ImagePreset,
  imagePresets,
  type PixelModelSizes,
  paperSizes,
  pixelModelConfig,
} from "./presets.ts";
export { createImageRun, type ImageRunConfig, type ImageRunSource, openPixelModel } from "./run.ts";
export { type Picture, printImages, type SheetOptions, sheetOf } from "./sheet.ts";
