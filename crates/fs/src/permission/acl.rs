//! Access lists, in the form in which Linux passes them as attributes.

use super::ACCESS;
use crate::error::Error;

/// The only version of the form.
const VERSION: u32 = 2;
/// The number of an entry that names nobody.
const NOBODY: u32 = u32::MAX;

/// Whom an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// The owner.
    Owner,
    /// A user.
    User(u32),
    /// The inode's group.
    OwningGroup,
    /// Another group.
    Group(u32),
    /// The most that users and groups get.
    Mask,
    /// Everybody else.
    Other,
}

impl Tag {
    const fn decode(tag: u16, id: u32) -> Option<Tag> {
        Some(match tag {
            0x01 => Tag::Owner,
            0x02 => Tag::User(id),
            0x04 => Tag::OwningGroup,
            0x08 => Tag::Group(id),
            0x10 => Tag::Mask,
            0x20 => Tag::Other,
            _ => return None,
        })
    }

    const fn encode(self) -> (u16, u32) {
        match self {
            Tag::Owner => (0x01, NOBODY),
            Tag::User(id) => (0x02, id),
            Tag::OwningGroup => (0x04, NOBODY),
            Tag::Group(id) => (0x08, id),
            Tag::Mask => (0x10, NOBODY),
            Tag::Other => (0x20, NOBODY),
        }
    }

    /// Place in the order of entries.
    const fn rank(self) -> u8 {
        match self {
            Tag::Owner => 0,
            Tag::User(_) => 1,
            Tag::OwningGroup => 2,
            Tag::Group(_) => 3,
            Tag::Mask => 4,
            Tag::Other => 5,
        }
    }

    /// Whether there may be several.
    const fn is_named(self) -> bool {
        matches!(self, Tag::User(_) | Tag::Group(_))
    }
}

/// An access list: owner, group and others, and, if anybody else is named, a mask. Never without the first three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<(Tag, u32)>);

impl Acl {
    /// Reads an attribute's value; `None` for an empty list, which stands for none.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no list that Linux takes.
    pub fn decode(value: &[u8]) -> Result<Option<Acl>, Error> {
        let wrong = Error::Invalid("this is no access list");
        let Some((version, entries)) = value.split_first_chunk::<4>() else {
            return if value.is_empty() {
                Ok(None)
            } else {
                Err(wrong)
            };
        };
        let (entries, rest) = entries.as_chunks::<8>();
        if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
            return Err(wrong);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl: Option<Vec<_>> = entries.iter().map(Self::entry).collect();
        let acl = acl.map(Acl).filter(Acl::is_valid);
        acl.map(Some).ok_or(wrong)
    }

    fn entry(bytes: &[u8; 8]) -> Option<(Tag, u32)> {
        let [t0, t1, p0, p1, id @ ..] = *bytes;
        let bits = u32::from(u16::from_le_bytes([p0, p1]));
        let tag = Tag::decode(u16::from_le_bytes([t0, t1]), u32::from_le_bytes(id))?;
        let names = !matches!(tag, Tag::User(NOBODY) | Tag::Group(NOBODY));
        (bits <= 0o7 && names).then_some((tag, bits))
    }

    /// In order, each of the three that must be there, and a mask if others are named.
    fn is_valid(&self) -> bool {
        let ordered = self.0.is_sorted_by(|(a, _), (b, _)| {
            a.rank() < b.rank() || a.rank() == b.rank() && a.is_named()
        });
        let has = |tag| self.0.iter().any(|(t, _)| *t == tag);
        let named = self.0.iter().any(|(tag, _)| tag.is_named());
        let whole = has(Tag::Owner) && has(Tag::OwningGroup) && has(Tag::Other);
        ordered && whole && (has(Tag::Mask) || !named)
    }

    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, bits) in &self.0 {
            let (tag, id) = tag.encode();
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&(*bits as u16).to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Whether it says more than a mode does.
    pub fn is_extended(&self) -> bool {
        self.0
            .iter()
            .any(|(tag, _)| tag.is_named() || *tag == Tag::Mask)
    }

    /// By how much the bits of an entry are shifted in a mode, if they stand there. The group's bits of a mode are the
    /// mask's, where there is one.
    fn shift(tag: Tag, masked: bool) -> Option<u32> {
        match tag {
            Tag::Owner => Some(6),
            Tag::OwningGroup if !masked => Some(3),
            Tag::Mask => Some(3),
            Tag::Other => Some(0),
            _ => None,
        }
    }

    /// The entries that stand in a mode, with their shifts.
    fn in_mode(&mut self) -> impl Iterator<Item = (&mut u32, u32)> {
        let masked = self.0.iter().any(|(tag, _)| *tag == Tag::Mask);
        let entries = self.0.iter_mut();
        entries.filter_map(move |(tag, bits)| Some((bits, Self::shift(*tag, masked)?)))
    }

    /// The mode's permissions that it stands for.
    pub fn mode(&self) -> u32 {
        let mut acl = self.clone();
        acl.in_mode()
            .fold(0, |mode, (bits, shift)| mode | *bits << shift)
    }

    /// The list after a chmod.
    #[must_use]
    pub fn with_mode(mut self, mode: u32) -> Acl {
        for (bits, shift) in self.in_mode() {
            *bits = mode >> shift & 0o7;
        }
        self
    }

    /// What a file that is made with this mode gets of a default list: permissions, and a list where they do not say
    /// all.
    pub fn narrowed(self, asked: u32) -> (u32, Option<Acl>) {
        let mode = self.mode() & asked & ACCESS;
        let acl = self.with_mode(mode);
        (mode, Some(acl).filter(Acl::is_extended))
    }
}
