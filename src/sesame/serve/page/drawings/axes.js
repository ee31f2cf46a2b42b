// Scales and their ticks: round numbers, equal steps or, on a logarithmic scale, equal factors.

/** Round numbers from low to high, `count` of them at most: 1, 2 or 5 times a power of ten apart. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const found = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-9; number += 1) found.push(Number((number * step).toPrecision(12)));
  return found;
}

/** Within few powers of ten also 2 and 5; within less than one, steps. */
export function logTicks(low, high, count) {
  const powers = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) powers.push(power);
  const within = (values) => values.filter((value) => value >= low && value <= high);
  const all = within(powers.flatMap((power) => [1, 2, 5].map((factor) => Number(`${factor}e${power}`))));
  if (all.length < 3) return within(ticks(low, high, count));
  if (all.length <= count + 2) return all;
  const skip = Math.ceil(powers.length / count);
  return within(powers.filter((power) => power % skip === 0).map((power) => Number(`1e${power}`)));
}

/** From a value to a place between `from` and `to`. */
export function scale(low, high, from, to, log = false) {
  const at = log ? Math.log10 : (value) => value;
  const [start, span] = [at(low), at(high) - at(low)];
  return (value) => from + ((at(value) - start) / span) * (to - from);
}

/** The range of some values, with a little air; all above 0 on a logarithmic scale. */
export function range(values, log = false) {
  const kept = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (kept.length === 0) return null;
  const [low, high] = kept.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [kept[0], kept[0]]);
  if (log) {
    const air = high > low ? (high / low) ** 0.06 : 1.1;
    return [low / air, high * air];
  }
  const air = high > low ? 0.06 * (high - low) : 0.1 * Math.abs(high) || 1;
  return [low - air, high + air];
}

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

export function count(value) {
  return COUNT.format(value);
}

/** 1.5 M for 1,500,000. */
export function amount(value) {
  const [size, sign] = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]].find(([least]) => value >= least) ?? [1, ""];
  return `${Number((value / size).toPrecision(3))}${sign}`;
}

export function duration(seconds) {
  const [size, sign] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([least]) => seconds >= least) ?? [1, "s"];
  const value = seconds / size;
  return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} ${sign}`;
}

/** Four digits of a loss, a score or a rate. */
export function figure(value) {
  const size = Math.abs(value);
  const words = size !== 0 && (size < 1e-3 || size >= 1e5) ? Number(value.toPrecision(3)).toExponential() : Number(value.toPrecision(4)).toString();
  return words.replaceAll("-", "−").replace("e+", "e");
}
