//! `loamfs probe`: what udev wants to know of a device.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::output::print_lines;
use crate::report::Identity;

/// Print who a volume is, as properties for udev(7). The device may be in use.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// The device or image file.
    device: PathBuf,
}

impl ProbeArgs {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// If there is no volume.
    pub fn run(self) -> Result<u8, Failure> {
        let identity =
            Identity::probe(&self.device).map_err(|error| Failure::volume(&self.device, &error))?;
        print_lines(properties(&identity.uuid().to_string(), identity.label()))
    }
}

fn properties(uuid: &str, label: &[u8]) -> Vec<String> {
    let mut lines = vec![
        "ID_FS_TYPE=loamfs".to_owned(),
        "ID_FS_USAGE=filesystem".to_owned(),
        "ID_FS_VERSION=1".to_owned(),
        format!("ID_FS_UUID={uuid}"),
        format!("ID_FS_UUID_ENC={uuid}"),
    ];
    if !label.is_empty() {
        lines.push(format!("ID_FS_LABEL={}", safe(label)));
        lines.push(format!("ID_FS_LABEL_ENC={}", encoded(label)));
    }
    lines
}

/// Characters that stay as they are in the names of links below /dev/disk, as libblkid has it. A label is whatever
/// somebody wrote into a superblock, and udev takes each line for a property.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "#+-.:=@_".contains(letter) || !letter.is_ascii()
}

fn safe(label: &[u8]) -> String {
    let letters = String::from_utf8_lossy(label);
    let plain = |letter| {
        if is_plain(letter) && !char::is_control(letter) {
            letter
        } else {
            '_'
        }
    };
    letters.chars().map(plain).collect()
}

fn encoded(label: &[u8]) -> String {
    let mut text = String::new();
    for chunk in label.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                letter if is_plain(letter) && !letter.is_control() => text.push(letter),
                letter => hex(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        hex(&mut text, chunk.invalid());
    }
    text
}

fn hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_bring_in_other_properties() {
        let lines = properties("u", b"two words\nID_FS_TYPE=ext4\"$(x)\xff/..");
        assert_eq!(lines.len(), 7);
        assert_eq!(
            lines[5],
            "ID_FS_LABEL=two_words_ID_FS_TYPE=ext4___x_\u{fffd}_.."
        );
        assert_eq!(
            lines[6],
            r"ID_FS_LABEL_ENC=two\x20words\x0aID_FS_TYPE=ext4\x22\x24\x28x\x29\xff\x2f.."
        );
        assert_eq!(properties("u", b"").len(), 5);
        assert_eq!(encoded("größe".as_bytes()), "größe");
    }
}
