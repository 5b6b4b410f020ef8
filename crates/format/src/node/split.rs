//! Moving entries between pages: splits and merges.

use super::{Full, Page, SLOT_SIZE, VALUE_MAX};

impl Page {
    /// Moves the entries from `at` on to a new page with the lower bound `low`.
    pub fn split_off(&mut self, at: usize, low: u64) -> Page {
        let mut right = self.sibling(low);
        for index in at..self.count() {
            if let Some((key, value)) = self.entry(index) {
                // An empty page has room for what another page held.
                let _ = right.insert(key, value);
            }
        }
        self.truncate(at);
        self.compact();
        right
    }

    /// Adds an entry for which there is no room, by splitting at the cut that leaves both pages nearest to equal.
    /// Returns the new right page, whose low is its first key. With `append`, when the entry comes last, the left
    /// page stays full and the entry goes alone to the right: keys that only grow then fill whole pages.
    ///
    /// # Errors
    /// [`Full`] when the value is too long for any page; nothing was changed.
    pub fn split_insert(&mut self, key: u64, value: &[u8], append: bool) -> Result<Page, Full> {
        if value.len() > VALUE_MAX {
            return Err(Full);
        }
        if let Ok(index) = self.find(key) {
            self.remove(index);
        }
        let index = self.ceiling(key);
        let count = self.count();
        let cut = if append && index == count {
            count
        } else {
            self.cut(index, SLOT_SIZE + value.len())
        };
        // `cut` counts the new entry: the left page gets that many of them.
        let (at, left) = if cut > index {
            (cut - 1, true)
        } else {
            (cut, false)
        };
        let low = if cut == index {
            key
        } else {
            self.key(at).unwrap_or(key)
        };
        let mut right = if at == count {
            self.sibling(low)
        } else {
            self.split_off(at, low)
        };
        if left {
            self.insert(key, value)?
        } else {
            right.insert(key, value)?
        };
        Ok(right)
    }

    /// Takes over all entries of `right`, the next page.
    ///
    /// # Errors
    /// [`Full`] when they do not all fit; nothing was changed.
    pub fn merge(&mut self, right: &Page) -> Result<(), Full> {
        if right.used_bytes() > self.free_bytes() {
            return Err(Full);
        }
        for (key, value) in right.iter() {
            self.insert(key, value)?;
        }
        Ok(())
    }

    /// An empty page of the same tree and level.
    fn sibling(&self, low: u64) -> Page {
        let mut page = self.clone();
        page.0.slots.fill(zerocopy::FromZeros::new_zeroed());
        page.0.header.count.set(0);
        page.clear_heap();
        page.set_low(low);
        page
    }

    /// How many entries go to the left when an entry of `size` bytes comes in at `index`; at least one stays on
    /// either side.
    fn cut(&self, index: usize, size: usize) -> usize {
        let entries = self.count() + 1;
        let size_of = |i: usize| match i.cmp(&index) {
            std::cmp::Ordering::Less => self.entry_size(i),
            std::cmp::Ordering::Equal => size,
            std::cmp::Ordering::Greater => self.entry_size(i - 1),
        };
        let total = self.used_bytes() + size;
        let mut left = 0;
        let mut best = (usize::MAX, 1);
        for cut in 1..entries {
            left += size_of(cut - 1);
            best = best.min(((2 * left).abs_diff(total), cut));
        }
        best.1
    }

    fn entry_size(&self, index: usize) -> usize {
        SLOT_SIZE + self.value(index).map_or(0, <[u8]>::len)
    }
}
