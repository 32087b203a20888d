/** Constants that the kernel build defines, for editors: 0, 1 or 2 for tiers a, b and c. */
declare const TIER: i32;
