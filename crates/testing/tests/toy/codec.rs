//! The toy's on-disk form of a model: fields one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use loamfs_format::inode::Timestamp;
use loamfs_testing::content::{Content, UNIT};
use loamfs_testing::model::{Body, Id, Model, Object};

/// The bytes of a model.
pub fn encode(model: &Model) -> Vec<u8> {
    let mut out = Vec::new();
    number(&mut out, model.objects().len() as u64);
    for (&id, object) in model.objects() {
        number(&mut out, id);
        encode_object(&mut out, object);
    }
    out
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    number(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn encode_object(out: &mut Vec<u8>, object: &Object) {
    for field in [
        object.file_type,
        object.permissions,
        object.uid,
        object.gid,
        object.rdev,
        object.nlink,
        u32::from(object.mtime.is_some()),
    ] {
        number(out, field.into());
    }
    let time = object.mtime.unwrap_or_default();
    number(out, time.seconds.cast_unsigned());
    number(out, time.nanos.into());
    number(out, object.xattrs.len() as u64);
    for (name, value) in &object.xattrs {
        bytes(out, name);
        bytes(out, value);
    }
    match &object.body {
        Body::Special => number(out, 0),
        Body::Symlink(target) => {
            number(out, 1);
            bytes(out, target);
        }
        Body::Dir { parent, entries } => {
            number(out, 2);
            number(out, *parent);
            number(out, entries.len() as u64);
            for (name, &id) in entries {
                bytes(out, name);
                number(out, id);
            }
        }
        Body::File(content) => {
            number(out, 3);
            number(out, content.size());
            number(out, content.stored_units().count() as u64);
            for unit in content.stored_units() {
                number(out, unit);
                bytes(out, &content.read(unit * UNIT, UNIT as usize));
            }
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }

    fn short(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }
}

/// The model that has these bytes, if they are whole.
pub fn decode(encoded: &[u8]) -> Option<Model> {
    let mut reader = Reader(encoded);
    let mut objects: BTreeMap<Id, Arc<Object>> = BTreeMap::new();
    for _ in 0..reader.number()? {
        let id = reader.number()?;
        objects.insert(id, Arc::new(decode_object(&mut reader)?));
    }
    Some(Model::from_objects(objects))
}

fn decode_object(reader: &mut Reader<'_>) -> Option<Object> {
    let mut fields = [0; 7];
    for field in &mut fields {
        *field = reader.short()?;
    }
    let [file_type, permissions, uid, gid, rdev, nlink, timed] = fields;
    let time = Timestamp {
        seconds: reader.number()?.cast_signed(),
        nanos: reader.short()?,
    };
    let mut xattrs = BTreeMap::new();
    for _ in 0..reader.number()? {
        let name = reader.bytes()?.to_vec();
        xattrs.insert(name, reader.bytes()?.into());
    }
    let body = match reader.number()? {
        0 => Body::Special,
        1 => Body::Symlink(reader.bytes()?.to_vec()),
        2 => {
            let parent = reader.number()?;
            let mut entries = BTreeMap::new();
            for _ in 0..reader.number()? {
                let name = reader.bytes()?.to_vec();
                entries.insert(name, reader.number()?);
            }
            Body::Dir { parent, entries }
        }
        _ => {
            let mut content = Content::default();
            let size = reader.number()?;
            for _ in 0..reader.number()? {
                let unit = reader.number()?;
                content.write(unit * UNIT, reader.bytes()?);
            }
            content.truncate(size);
            Body::File(content)
        }
    };
    Some(Object {
        file_type,
        permissions,
        uid,
        gid,
        rdev,
        nlink,
        mtime: (timed != 0).then_some(time),
        xattrs,
        body,
    })
}
