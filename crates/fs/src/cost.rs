//! What a disk's time costs, as far as where things lie decides it: a seek curve, half a turn, and a rate.
//!
//! The curve is that of Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling" (IEEE Computer, March 1994), below
//! a third of the stroke: the shortest seek, and from there with the root of the distance.

use loamfs_format::superblock::DiskFigures;

/// A disk: its figures, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Bytes of the whole stroke.
    stroke: u64,
    /// Shortest seek, in microseconds.
    shortest: u64,
    /// Seek over a third of the stroke, in microseconds.
    average: u64,
    /// A turn, in microseconds.
    turn: u64,
    /// Bytes that pass in a microsecond.
    rate: u64,
    /// Whether what is written in short pieces costs bands that are written anew later, and no seek.
    shingled: bool,
}

/// Where pieces lie that are read or written together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scatter {
    /// Pieces, each without a gap.
    pub pieces: u64,
    /// Bytes of all pieces.
    pub bytes: u64,
    /// Bytes from the start of the first piece to the end of the last.
    pub span: u64,
}

impl Disk {
    /// A disk of so many bytes, and of the figures that the volume says; else it is like most that turn, or do not.
    pub fn of(stroke: u64, said: Option<DiskFigures>, rotational: bool) -> Disk {
        let figures = said.unwrap_or(DiskFigures::usual(rotational));
        Disk {
            stroke,
            shortest: figures.shortest_seek.into(),
            average: figures.average_seek.into(),
            turn: figures.turn.into(),
            rate: u64::from(figures.rate).max(1),
            shingled: figures.shingled,
        }
    }

    /// Microseconds until what lies `gap` bytes ahead can be read or written: what is between may pass below the arm, if
    /// that is quicker than to go there and wait for it.
    pub fn step(&self, gap: u64) -> u64 {
        (gap / self.rate).min(self.seek(gap))
    }

    /// Microseconds to go over so many bytes, and to wait for what is there.
    fn seek(&self, gap: u64) -> u64 {
        let part = gap.saturating_mul(3_000_000) / self.stroke.max(1);
        let curve =
            self.average.saturating_sub(self.shortest) * part.min(1_000_000).isqrt() / 1_000;
        self.shortest + curve + self.turn / 2
    }

    /// Microseconds from one place to another: backwards nothing passes below the arm.
    pub fn way(&self, from: u64, to: u64) -> u64 {
        match to >= from {
            true => self.step(to - from),
            false => self.seek(from - to),
        }
    }

    /// The same where something is written.
    pub fn way_to_write(&self, from: u64, to: u64) -> u64 {
        match self.shingled {
            true => 0,
            false => self.way(from, to),
        }
    }

    /// Microseconds that a write `gap` bytes ahead takes longer than one that goes on. A shingled disk takes writes that do not
    /// go on into a cache, one behind the other.
    pub fn write_step(&self, gap: u64) -> u64 {
        match self.shingled {
            true => 0,
            false => self.step(gap),
        }
    }

    /// Whether it turns: what does not has no seeks.
    pub fn turns(&self) -> bool {
        self.turn > 0
    }

    /// Microseconds in which so many bytes pass.
    pub fn pass(&self, bytes: u64) -> u64 {
        bytes / self.rate
    }

    /// Bytes that pass in a second.
    pub fn bytes_in_a_second(&self) -> u64 {
        self.rate * 1_000_000
    }

    /// Microseconds of one pass over pieces, in the order of their addresses, from anywhere; none if there are none.
    pub fn sweep(&self, scatter: Scatter) -> u64 {
        let Scatter { pieces, bytes, .. } = scatter;
        if pieces == 0 {
            return 0;
        }
        let gaps = pieces.saturating_sub(1);
        let gap = scatter.span.saturating_sub(bytes) / gaps.max(1);
        self.average + self.turn / 2 + gaps * self.step(gap) + bytes / self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_passes_below_the_arm_where_that_is_quicker() {
        let disk = Disk::of(1 << 40, None, true);
        assert_eq!(disk.step(0), 0);
        assert_eq!(disk.step(180_000), 1_000);
        let far = disk.step(1 << 39);
        assert_eq!(far, 8_500 + 8_333 / 2);
        assert!(disk.step(100 << 20) < far && disk.step(100 << 20) > 800 + 8_333 / 2);
    }

    /// So no single read can win back what a write into a hole nearer to its directory costs (`space::placement::data`).
    #[test]
    fn a_way_is_never_longer_than_its_parts() {
        let disk = Disk::of(1 << 40, None, true);
        let gaps = || (0..40).map(|bits| (1 << bits) + 7);
        for (near, between) in gaps().flat_map(|gap| gaps().map(move |other| (gap, other))) {
            let parts = disk.step(near) + disk.step(between);
            // The root is rounded down.
            assert!(
                disk.step(near + between) <= parts + 8,
                "{near} and {between}"
            );
        }
    }

    #[test]
    fn many_pieces_cost_what_passes_below_them_and_few_cost_a_seek_each() {
        let disk = Disk::of(8 << 30, None, true);
        let span = 64 << 20;
        let of = |pieces: u64| {
            disk.sweep(Scatter {
                pieces,
                bytes: pieces * 4096,
                span,
            })
        };
        let whole = disk.sweep(Scatter {
            pieces: 1,
            bytes: span,
            span,
        });
        assert!(of(8_000) <= whole + 1_000);
        assert!(of(10) > 10 * 4_000 && of(10) < whole);
    }
}
