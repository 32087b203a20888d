import type { Tensor } from "../autograd/tensor.ts";
import { type ShortConvOptions, shortConv } from "../ops/short-conv/index.ts";
import { fanInInit, zerosInit } from "./init.ts";
import { Module, Parameter } from "./module.ts";

/** Options of `ShortConv`. */
export interface ShortConvModuleOptions extends ShortConvOptions {
  readonly channels: number;
  /** Taps W; 4 unless given. */
  readonly width?: number;
  readonly bias?: boolean;
}

/** The causal depthwise convolution in front of recurrent mixers, with its weights. */
export class ShortConv extends Module {
  readonly weight: Parameter;
  readonly bias: Parameter | undefined;
  readonly width: number;
  readonly options: ShortConvOptions;

  constructor(options: ShortConvModuleOptions) {
    super();
    this.width = options.width ?? 4;
    this.weight = new Parameter([options.channels, this.width], { init: fanInInit() });
    this.bias = options.bias
      ? new Parameter([options.channels], { init: zerosInit, decays: false })
      : undefined;
    this.options = options.activation === undefined ? {} : { activation: options.activation };
  }

  /** `x [B, T, C]`, the W − 1 tokens before in `initialState [B, W−1, C]` → the same shapes. */
  forward(x: Tensor, initialState?: Tensor, cuSeqlens?: Tensor): { y: Tensor; finalState: Tensor } {
    return shortConv(
      { x, weight: this.weight.value, bias: this.bias?.value, initialState, cuSeqlens },
      this.options,
    );
  }
}
