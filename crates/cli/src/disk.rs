//! What a disk's time costs, as the command line says it.

use loamfs_format::superblock::DiskFigures;

/// Reads `turning`, `solid`, `shingled`, or four figures: shortest and average seek in milliseconds, turns a minute (0: it does not
/// turn), and MB (10^6 bytes) a second.
///
/// # Errors
/// A sentence that says how figures are written.
pub fn parse(text: &str) -> Result<DiskFigures, String> {
    match text {
        "turning" => return Ok(DiskFigures::TURNING),
        "solid" => return Ok(DiskFigures::SOLID),
        "shingled" => return Ok(DiskFigures::SHINGLED),
        _ => {}
    }
    let numbers: Vec<f64> = text
        .split(',')
        .filter_map(|number| number.trim().parse().ok())
        .collect();
    let figures = match numbers[..] {
        [shortest, average, turns, rate] => figures(shortest, average, turns, rate),
        _ => None,
    };
    figures.filter(DiskFigures::is_possible).ok_or_else(|| {
        format!(
            "`{text}` is no disk; give `turning`, `solid`, `shingled`, or its shortest and its average seek in ms, its turns a minute \
             and its MB/s, such as 0.8,8.5,7200,180"
        )
    })
}

fn figures(shortest: f64, average: f64, turns: f64, rate: f64) -> Option<DiskFigures> {
    let turn = match turns {
        0.0 => 0.0,
        turns => 60_000_000.0 / turns,
    };
    Some(DiskFigures {
        shortest_seek: whole(shortest * 1_000.0)?,
        average_seek: whole(average * 1_000.0)?,
        turn: whole(turn)?,
        rate: whole(rate)?,
        shingled: false,
    })
}

fn whole(number: f64) -> Option<u32> {
    let fits = (0.0..=f64::from(u32::MAX)).contains(&number);
    fits.then(|| number.round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_figures_are_a_disk() {
        assert_eq!(parse("turning"), Ok(DiskFigures::TURNING));
        assert_eq!(parse("shingled"), Ok(DiskFigures::SHINGLED));
        assert_eq!(parse("0.8, 8.5,7200,180"), Ok(DiskFigures::TURNING));
        assert_eq!(parse("0.05,0.05,0,500"), Ok(DiskFigures::SOLID));
    }

    #[test]
    fn what_no_disk_can_be_is_refused() {
        let wrong = [
            "",
            "1,2,3",
            "1,2,7200,180,5",
            "9,8.5,7200,180",
            "0.8,8.5,7200,0",
            "0.8,8.5,-1,180",
            "0.8,NaN,7200,180",
            "0.8,8.5,1e-30,180",
            "0.8,2000,7200,180",
        ];
        for text in wrong {
            let error = parse(text).unwrap_err();
            assert!(error.contains("is no disk; give"), "{error}");
        }
    }
}
