//! Extended attributes: inline while they fit, else in a tree; large values in the log.

use crate::pointer::{Pointer, RawPointer};
use zerocopy::{FromBytes, IntoBytes};

/// Largest value, bytes.
pub const VALUE_MAX: usize = 65_536;
/// Values above this are runs in the log.
pub const TREE_VALUE_MAX: usize = 1_024;

/// The namespaces, by number.
pub const NAMESPACES: [(&[u8], u8); 4] = [
    (b"user.", 1),
    (b"trusted.", 2),
    (b"security.", 3),
    (b"system.", 4),
];

/// An attribute's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Here.
    Bytes(Vec<u8>),
    /// In the log, in pieces of at most a block.
    Log(Vec<Pointer>),
}

/// An attribute. Its key is the directory hash of its full name, with a discriminator as names have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Number of the namespace.
    pub namespace: u8,
    /// Name without the namespace's prefix.
    pub name: Vec<u8>,
    /// Value.
    pub value: Value,
}

impl Xattr {
    /// The bytes in a tree or in the inode: namespace, kind of value, length of the name, name, value.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.namespace, 0, self.name.len() as u8];
        bytes.extend_from_slice(&self.name);
        match &self.value {
            Value::Bytes(value) => bytes.extend_from_slice(value),
            Value::Log(pieces) => {
                bytes[1] = 1;
                for piece in pieces {
                    bytes.extend_from_slice(piece.encode().as_bytes());
                }
            }
        }
        bytes
    }

    /// Reads the bytes; `None` when they are no attribute.
    pub fn decode(bytes: &[u8]) -> Option<Xattr> {
        let (&[namespace, kind, len], rest) = bytes.split_first_chunk::<3>()?;
        let (name, value) = rest.split_at_checked(len.into())?;
        let value = match kind {
            0 => Value::Bytes(value.to_vec()),
            1 => Value::Log(
                <[RawPointer]>::ref_from_bytes(value)
                    .ok()?
                    .iter()
                    .map(Pointer::decode)
                    .collect(),
            ),
            _ => return None,
        };
        NAMESPACES
            .iter()
            .any(|(_, n)| *n == namespace)
            .then(|| Xattr {
                namespace,
                name: name.to_vec(),
                value,
            })
    }

    /// Splits a full name into the namespace's number and the rest; `None` for a namespace nobody knows.
    pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
        NAMESPACES
            .iter()
            .find_map(|(prefix, number)| full.strip_prefix(*prefix).map(|rest| (*number, rest)))
    }

    /// The full name.
    pub fn full_name(&self) -> Vec<u8> {
        let prefix = NAMESPACES
            .iter()
            .find(|(_, n)| *n == self.namespace)
            .map_or(&b""[..], |(p, _)| p);
        [prefix, &self.name].concat()
    }
}
