export function call(kernel: i32, args: usize, begin: i32, end: i32, scratch: usize): void {
  call_indirect<void>(kernel, args, begin, end, scratch);
}
