//! Samples of memory, and the check that it is flat.

use std::time::Duration;

use serde::Serialize;

use super::mediator::Memory;

/// Limits the growth, in KiB, from the first quarter after the warm-up to the last one. Runs of minutes
/// grow by about 200 KiB, most of it the noise of the allocator. An hour of 100 requests a second sends
/// about 240,000 between the middles of these quarters, so a leak of 9 bytes for each exceeds the limit.
pub const MOST_GROWTH: u64 = 2 * 1024;
/// The same for a run of seconds, in which memory is still warming up.
pub const MOST_GROWTH_COLD: u64 = 8 * 1024;
/// The part of the run at its beginning that is not compared.
const WARM_UP: f64 = 0.125;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    pub seconds: f64,
    pub memory: Memory,
}

/// The resident memory of a run, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Course {
    pub start: u64,
    pub first_quarter: u64,
    pub last_quarter: u64,
    pub end: u64,
    pub peak: u64,
    /// The part that belongs to no file, at the start and at the end.
    pub anonymous: (u64, u64),
    /// Over the second half, in KiB per hour.
    pub slope: f64,
}

impl Course {
    /// `None` if there are too few samples.
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let (first, last) = (samples.first()?, samples.last()?);
        let warm = &samples[(samples.len() as f64 * WARM_UP) as usize..];
        let quarter = warm.len() / 4;
        let resident = |samples: &[Sample]| median(samples.iter().map(|it| it.memory.resident));
        Some(Self {
            start: first.memory.resident,
            first_quarter: resident(&warm[..quarter])?,
            last_quarter: resident(&warm[warm.len() - quarter..])?,
            end: last.memory.resident,
            peak: last.memory.peak,
            anonymous: (first.memory.anonymous, last.memory.anonymous),
            slope: slope(&samples[samples.len() / 2..])?,
        })
    }

    pub fn growth(&self) -> u64 {
        self.last_quarter.saturating_sub(self.first_quarter)
    }

    /// The growth that the slope gives in this time, in KiB.
    pub fn growth_in(&self, time: Duration) -> f64 {
        self.slope * time.as_secs_f64() / 3600.0
    }
}

fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Fits a line by least squares.
fn slope(samples: &[Sample]) -> Option<f64> {
    let count = samples.len() as f64;
    let mean = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (hours, kib) = (
        |it: &Sample| it.seconds / 3600.0,
        |it: &Sample| it.memory.resident as f64,
    );
    let (middle, level) = (mean(&hours), mean(&kib));
    let spread = mean(&|it| (hours(it) - middle).powi(2));
    let together = mean(&|it| (hours(it) - middle) * (kib(it) - level));
    (spread > 0.0).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour with a sample each second, and this memory in KiB at each.
    fn hour(resident: impl Fn(u64) -> u64) -> Course {
        let samples: Vec<Sample> = (0..3600)
            .map(|second| Sample {
                seconds: second as f64,
                memory: Memory {
                    resident: resident(second),
                    anonymous: 0,
                    peak: 30_000,
                },
            })
            .collect();
        Course::of(&samples).unwrap()
    }

    #[test]
    fn growth_in_the_warm_up_does_not_count_and_later_growth_does() {
        let warming = hour(|second| 10_000 + 20 * second.min(400));
        assert_eq!((warming.growth(), warming.slope), (0, 0.0));
        assert_eq!((warming.start, warming.end), (10_000, 18_000));
        let leaking = hour(|second| 10_000 + 4 * second);
        assert!(leaking.growth() > MOST_GROWTH_COLD, "{leaking:?}");
        assert!((leaking.slope - 4.0 * 3600.0).abs() < 1.0, "{leaking:?}");
        let jumping = hour(|second| 10_000 + if second % 10 == 0 { 50_000 } else { 0 });
        assert_eq!(jumping.growth(), 0, "{jumping:?}");
    }

    #[test]
    fn two_samples_are_too_few() {
        assert_eq!(Course::of(&[]), None);
    }
}
