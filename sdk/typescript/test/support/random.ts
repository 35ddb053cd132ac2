/** randomNumbers makes numbers from 0 to 1, the same ones in each run. */
export function randomNumbers(seed: number): () => number {
  let last = seed;
  return () => {
    last = (last * 1103515245 + 12345) % 2 ** 31;
    return last / 2 ** 31;
  };
}
