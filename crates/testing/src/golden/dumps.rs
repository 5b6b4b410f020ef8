//! Every structure of a volume as text, as `loamfs dump` shows it.

use loamfs_check::Volume;
use loamfs_check::dump::{self, View};
use loamfs_device::Device;
use loamfs_format::inode::{Body, Table};
use loamfs_format::node::TreeRoot;
use loamfs_format::{BlockKind, InodeBlockNo, ifile};

use super::Made;

/// The dumps of everything, each under a line that says which it is.
pub fn dumps(device: &dyn Device) -> Made<String> {
    let volume = Volume::open(device)?;
    let mut out = String::new();
    let mut add = |what: &str, view: Box<dyn View>| out += &format!("== {what}\n{view}");
    add("superblock", dump::superblock(&volume));
    add("groups", dump::groups(&volume));
    add("bitmap", dump::bitmap(&volume));
    add("owners", dump::owners(&volume));
    add("lazy", dump::lazy(&volume));
    add("segments", dump::segments(&volume));
    for link in volume.segments() {
        let ssn = link.header.ssn;
        add(&format!("segment {ssn}"), dump::segment(&volume, ssn)?);
    }
    let mut roots: Vec<TreeRoot> = BlockKind::ALL
        .into_iter()
        .filter(|kind| kind.is_map())
        .map(|kind| volume.map(kind).root)
        .collect();
    add("ifile", dump::ifile(&volume));
    for entry in volume.ifile(InodeBlockNo(0)) {
        let (block, entry) = entry?;
        for slot in (0..32).filter(|slot| entry.live & 1 << slot != 0) {
            let ino = ifile::ino_at(InodeBlockNo(block), slot);
            add(&format!("inode {ino}"), dump::inode(&volume, ino)?);
            let inode = volume.inode(ino)?;
            if inode.is_dir() {
                add(&format!("dir {ino}"), dump::directory(&volume, ino)?);
            }
            for entry in volume.table(&inode) {
                let (_, entry) = entry?;
                if entry.is_some() {
                    let at = entry.addr;
                    add(&format!("track {at}"), dump::track(&volume, at)?);
                }
            }
            if !inode.checksums.is_empty() {
                add(&format!("extents {ino}"), dump::extents(&volume, ino)?);
                add(&format!("checksums {ino}"), dump::checksums(&volume, ino)?);
            }
            roots.extend([inode.checksums, inode.xattrs]);
            if let Body::ExtentTree(root) | Body::DirTree(root) = inode.body {
                roots.push(root);
            }
            if let Table::Tree(root) = inode.table {
                roots.push(root);
            }
        }
    }
    for root in roots.iter().filter(|root| !root.is_empty()) {
        let at = root.pointer.addr;
        add(&format!("node {at}"), dump::node(&volume, device, at)?);
    }
    Ok(out)
}
