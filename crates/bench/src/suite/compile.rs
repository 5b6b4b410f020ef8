//! hFS, Table 1: a C program is copied to the file system and built there. Its sources are made from the seed; a fifth
//! of them, as of the paper's kernel sources, is larger than 16 KiB, mostly by comments.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use rand_chacha::ChaCha8Rng;

use super::random::{below, generator};
use super::stage::{End, Stage};
use crate::Error;
use crate::lab;
use crate::workload::write_new;

const PER_DIRECTORY: u64 = 40;
/// The paper's files, and those of them above 16 KiB.
const FILES: u64 = 4_296;
const LARGE: u64 = 836;
const HEADER: &str = "common.h";

/// A program of `files` files: a header, and sources with numbers from 1 on.
pub fn run(stage: &mut Stage, files: u64, seed: u64) -> Result<(), Error> {
    let mut random = generator(seed, "compile");
    stage.program_phase("copy", End::Remount, |root, beat| {
        write_new(&root.join(HEADER), header(files).as_bytes())?;
        for number in 1..files {
            let path = root.join(source(number));
            if (number - 1).is_multiple_of(PER_DIRECTORY)
                && let Some(directory) = path.parent()
            {
                fs::create_dir_all(directory).map_err(Error::at("making", directory))?;
            }
            let size = size(number, &mut random);
            write_new(&path, text(number, files, size).as_bytes())?;
            beat.tick()?;
        }
        Ok(())
    })?;
    stage.program_phase("build", End::Remount, |root, beat| {
        let mut link = cc(root);
        link.args(["-o", "program"]);
        for number in 1..files {
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

/// Whether a file is larger than 16 KiB: of every 4,296 as many as of the paper's, evenly spread. So is the header, number
/// 0, which declares a function of each.
const fn is_large(number: u64) -> bool {
    number * LARGE % FILES < LARGE
}

/// The least bytes of a source.
fn size(number: u64, random: &mut ChaCha8Rng) -> usize {
    let (least, span) = if is_large(number) {
        (16 << 10, 48 << 10)
    } else {
        (512, 15 << 10)
    };
    least + below(random, span) as usize
}

fn header(files: u64) -> String {
    let mut header = String::from("#include <stdio.h>\n");
    for number in 1..files {
        // Writing to a string does not fail.
        let _ = writeln!(header, "int f{number}(int);");
    }
    header
}

fn cc(root: &Path) -> Command {
    let mut command = Command::new("cc");
    command.current_dir(root);
    command
}

fn source(number: u64) -> String {
    format!("part{}/f{number}.c", (number - 1) / PER_DIRECTORY)
}

/// A file of at least `size` bytes that calls the next one's function.
fn text(number: u64, files: u64, size: usize) -> String {
    let next = number + 1;
    let call = if next < files {
        format!("f{next}(x + 1)")
    } else {
        "x".into()
    };
    let mut text = format!("#include \"{HEADER}\"\nint f{number}(int x) {{ return {call}; }}\n");
    if number == 1 {
        text += "int main(void) { printf(\"%d\\n\", f1(0)); return 0; }\n";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_are_large_as_in_the_paper() {
        let mut random = generator(1, "test");
        let sources = (1..FILES).map(|number| text(number, FILES, size(number, &mut random)));
        let all = sources.chain([header(FILES)]);
        let large = all.filter(|text| text.len() > 16 << 10).count();
        assert_eq!(large as u64, LARGE);
    }
}
