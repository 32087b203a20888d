export {
  deltaNetwork,
  gatedDeltaNetwork,
  gatedLinear,
  hgrn2Format,
  kimiDeltaAttention,
  linearAttention,
  retNet,
} from "./flash.ts";
export { kimiLinearFormat } from "./kimi.ts";
export { flashMamba2, mamba2Format } from "./mamba2.ts";
export { miniMaxFormat } from "./minimax.ts";
export { qwen3NextFormat, qwen35Format } from "./qwen.ts";
