//! The mean of several runs, and how sure it is.

use serde::Serialize;

/// Student's t for 95 %, by degrees of freedom from 1 on; then that of endless ones.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
const T_ENDLESS: f64 = 1.960;

/// What several runs came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval in which the true mean lies with 95 %; nothing of a single run.
    pub within: Option<f64>,
}

impl Sample {
    /// Of these figures, of which there is at least one; 0 of none.
    pub fn of(figures: &[f64]) -> Sample {
        let count = figures.len().max(1) as f64;
        let mean = figures.iter().sum::<f64>() / count;
        let square = |figure: &f64| (figure - mean) * (figure - mean);
        let freedom = figures.len().saturating_sub(1);
        let within = (freedom > 0).then(|| {
            let variance = figures.iter().map(square).sum::<f64>() / freedom as f64;
            T.get(freedom - 1).unwrap_or(&T_ENDLESS) * (variance / count).sqrt()
        });
        Sample { mean, within }
    }

    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Sample {
        Sample {
            mean: self.mean * factor,
            within: self.within.map(|within| within * factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        let sample = Sample::of(&[1.0, 2.0, 3.0]);
        assert!((sample.mean - 2.0).abs() < 1e-9);
        // A deviation of 1 and two degrees of freedom.
        assert!((sample.within.unwrap() - 4.303 / 3_f64.sqrt()).abs() < 1e-9);
        assert_eq!(Sample::of(&[5.0]).within, None);
    }
}
