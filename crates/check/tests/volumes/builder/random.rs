//! Numbers and bytes that look like chance, the same for the same seed.

/// A small generator of numbers, the same for the same seed.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// One time in eight, flips a few bits, most of them near the start where headers are, or makes a word extreme.
    pub fn damage(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() || self.below(8) > 0 {
            return;
        }
        let near = if self.below(2) == 0 {
            bytes.len().min(256)
        } else {
            bytes.len()
        };
        for _ in 0..=self.below(4) {
            let at = self.below(near);
            match self.below(4) {
                0 => bytes[at] = 0xff,
                1 => bytes[at] = 0,
                2 => {
                    let end = (at + 8).min(bytes.len());
                    bytes[at..end].fill(0xff);
                }
                _ => bytes[at] ^= 1 << self.below(8),
            }
        }
    }
}

/// A run of letters that depends on the seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            b'a' + (state % 26) as u8
        })
        .collect()
}
