//! hFS, Table 1: a C program is copied to the file system and built there. Its sources are made from the seed; a fifth
//! of them, as of the paper's kernel sources, is larger than 16 KiB, mostly by comments.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::random::{below, generator};
use super::stage::{End, Stage};
use crate::Error;
use crate::lab;
use crate::workload::write_new;

const PER_DIRECTORY: u64 = 40;
const HEADER: &str = "common.h";

/// A program of `files` source files.
pub fn run(stage: &mut Stage<'_>, files: u64, seed: u64) -> Result<(), Error> {
    let mut random = generator(seed, "compile");
    stage.phase("copy", End::Remount, |root, beat| {
        let mut header = String::from("#include <stdio.h>\n");
        for number in 0..files {
            // Writing to a string does not fail.
            let _ = writeln!(header, "int f{number}(int);");
        }
        write_new(&root.join(HEADER), header.as_bytes())?;
        for number in 0..files {
            let large = below(&mut random, 4_296) < 836;
            let (least, span) = if large {
                (16 << 10, 48 << 10)
            } else {
                (512, 15 << 10)
            };
            let size = least + below(&mut random, span) as usize;
            let path = root.join(source(number));
            if number.is_multiple_of(PER_DIRECTORY)
                && let Some(directory) = path.parent()
            {
                fs::create_dir_all(directory).map_err(Error::at("making", directory))?;
            }
            write_new(&path, text(number, files, size).as_bytes())?;
            beat.tick()?;
        }
        Ok(())
    })?;
    stage.phase("build", End::Remount, |root, beat| {
        let mut link = cc(root);
        link.args(["-o", "program"]);
        for number in 0..files {
            let object = format!("{}.o", source(number));
            let mut compile = cc(root);
            compile.args(["-I.", "-c", "-O0", "-o", &object, &source(number)]);
            lab::run(&mut compile)?;
            link.arg(object);
            beat.tick()?;
        }
        lab::run(&mut link).map(drop)
    })
}

fn cc(root: &Path) -> Command {
    let mut command = Command::new("cc");
    command.current_dir(root);
    command
}

fn source(number: u64) -> String {
    format!("part{}/f{number}.c", number / PER_DIRECTORY)
}

/// A file of about `size` bytes that calls the next one's function.
fn text(number: u64, files: u64, size: usize) -> String {
    let next = number + 1;
    let call = if next < files {
        format!("f{next}(x + 1)")
    } else {
        "x".into()
    };
    let mut text = format!("#include \"{HEADER}\"\nint f{number}(int x) {{ return {call}; }}\n");
    if number == 0 {
        text += "int main(void) { printf(\"%d\\n\", f0(0)); return 0; }\n";
    }
    let mut line = 0;
    while text.len() < size {
        line += 1;
        let _ = writeln!(
            text,
            "/* line {line} of file {number} says nothing to the compiler */"
        );
    }
    text
}
