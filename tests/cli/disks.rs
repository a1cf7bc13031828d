//! Disks that fill, and power that fails: a resumed run ends as one on a disk without trouble.
//!
//! `make kills` runs these tests. They mount file systems, which needs root.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::host::{host, kill_after_event, run_dir};
use crate::train::{assert_same_result, resume_args};

/// Unit of the fill levels, bytes: the block of a tmpfs.
const BLOCK: usize = 4_096;
/// Blocks of the tmpfs, more than a run needs.
const DISK_BLOCKS: usize = 1_024;
/// Steps of a run.
const STEPS: usize = 3;

/// A mounted file system, until the value is dropped.
struct Disk {
    mount_point: PathBuf,
    /// Options and source of `mount`.
    mount_args: Vec<String>,
}

impl Disk {
    /// Mounts a file system that is in memory, with [`DISK_BLOCKS`] blocks.
    fn in_memory(folder: &Path) -> Self {
        let size = format!("size={}", DISK_BLOCKS * BLOCK);
        Self::mounted(folder, &["-t", "tmpfs", "-o", &size, "none"])
    }

    /// Mounts a new ext4. After a power cut, it has only what was flushed to it: it neither commits
    /// its journal from time to time, nor flushes a file that is renamed over another.
    fn ext4(folder: &Path) -> Self {
        let image = folder.join("image");
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let image = image.to_str().unwrap();
        succeed(Command::new("mkfs.ext4").args(["-q", image]));
        let options = "loop,commit=600,data=writeback,noauto_da_alloc";
        Self::mounted(folder, &["-t", "ext4", "-o", options, image])
    }

    fn mounted(folder: &Path, mount_args: &[&str]) -> Self {
        let mount_point = folder.join("disk");
        fs::create_dir(&mount_point).unwrap();
        let mount_args = mount_args.iter().map(|&arg| arg.to_owned()).collect();
        let disk = Self { mount_point, mount_args };
        disk.mount();
        disk
    }

    fn mount(&self) {
        succeed(Command::new("mount").args(&self.mount_args).arg(&self.mount_point));
    }

    fn unmount(&self) {
        succeed(Command::new("umount").arg(&self.mount_point));
    }

    /// Stops the file system as a power cut does: everything that is not on the device is lost.
    #[allow(unsafe_code)]
    fn cut_power(&self) {
        use rustix::ioctl::{Setter, ioctl, opcode};
        /// `EXT4_IOC_SHUTDOWN`.
        const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);
        /// `EXT4_GOING_FLAGS_NOLOGFLUSH`.
        const WITHOUT_FLUSHING: u32 = 2;
        let root = File::open(&self.mount_point).unwrap();
        // SAFETY: the call reads a 32-bit number of flags.
        unsafe { ioctl(root, Setter::<SHUTDOWN, u32>::new(WITHOUT_FLUSHING)) }.unwrap();
    }

    /// Mounts the file system again, as after the return of the power.
    fn restart(&self) {
        self.unmount();
        self.mount();
    }

    fn run(&self) -> PathBuf {
        self.mount_point.join("run")
    }

    /// Fills the disk until it has this number of free blocks, with a file that is returned.
    fn fill(&self, free_blocks: usize) -> PathBuf {
        let filler = self.mount_point.join("filler");
        fs::write(&filler, vec![0; (DISK_BLOCKS - free_blocks) * BLOCK]).unwrap();
        filler
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount_point).status();
    }
}

fn succeed(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?} failed; it needs root");
}

/// Returns the arguments of a run with few completions.
fn small_run<'a>(out: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let settings = [
        "train",
        "--device",
        "cpu",
        "--set",
        "question.prompts_per_step=1",
        "--set",
        "question.eval_limit=2",
        "--set",
        "rollout.num_generations=4",
        "--set",
        "rollout.max_completion_length=32",
        "--set",
        "update.lora.r=1",
        "--set",
        "checkpoint.every=1",
        "--set",
        "checkpoint.keep=1",
        "--steps",
        "3",
        "--json",
        "--out",
        out.to_str().unwrap(),
    ];
    [&settings[..], more].concat()
}

/// A run without a manifest has not begun, and starts again.
#[test]
#[ignore = "mounts file systems: make kills"]
fn run_resumes_identically_from_every_fill_level_of_a_disk() {
    let start = Instant::now();
    let straight = run_dir("disk-with-room");
    host(&small_run(&straight, &[])).good();
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::in_memory(folder.path());
    let run = disk.run();
    let mut levels = 0;
    loop {
        let filler = disk.fill(levels);
        let finished = host(&small_run(&run, &[]));
        fs::remove_file(filler).unwrap();
        let is_complete = finished.code == Some(0);
        if !is_complete {
            let finished = finished.found(1);
            assert!(finished.stderr.contains("No space left on device"), "{levels}: {finished}");
            let has_begun = run.join("manifest.json").exists();
            assert_eq!(finished.stderr.contains("--resume` resumes it"), has_begun, "{finished}");
            host(&small_run(&run, resume_args(&run))).good();
        }
        assert_same_result(&run, &straight, STEPS);
        if is_complete {
            break;
        }
        fs::remove_dir_all(&run).unwrap();
        levels += 1;
    }
    assert!(levels > 20, "{levels}");
    eprintln!(
        "| disk full at each of {levels} fill levels of 4 KiB \
         | every run resumed to the same result ({:.0} s) |",
        start.elapsed().as_secs_f64()
    );
}

/// Cuts the power at random moments. A recorded reply is not lost either, since a replay needs it.
#[test]
#[ignore = "mounts file systems: make kills"]
fn run_resumes_identically_after_power_cuts() {
    let cuts: usize = std::env::var("CORVER_KILLS").map_or(5, |cuts| cuts.parse().unwrap());
    let start = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let straight = run_dir("power-that-holds");
    let straight_recording = folder.path().join("straight.jsonl");
    let duration = {
        let start = Instant::now();
        host(&small_run(&straight, &["--record", straight_recording.to_str().unwrap()])).good();
        start.elapsed()
    };
    let disk = Disk::ext4(folder.path());
    let (run, recording) = (disk.run(), disk.mount_point.join("recording.jsonl"));
    let record = ["--record", recording.to_str().unwrap()];
    let (mut cut, mut runs) = (0, 0);
    while cut < cuts || run.exists() {
        // A run that has no folder yet begins again, with its recording.
        let resume = resume_args(&run);
        if resume.is_empty() && recording.exists() {
            fs::remove_file(&recording).unwrap();
        }
        let args = small_run(&run, &[&record[..], resume].concat());
        if cut == cuts {
            host(&args).good();
        } else {
            let random = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
            kill_after_event(duration.mul_f64(random), &args, || disk.cut_power());
            disk.restart();
            cut += 1;
        }
        if run.join("summary.json").exists() {
            assert_same_result(&run, &straight, STEPS);
            assert_eq!(sorted_lines(&recording), sorted_lines(&straight_recording));
            fs::remove_dir_all(&run).unwrap();
            fs::remove_file(&recording).unwrap();
            runs += 1;
        }
    }
    eprintln!(
        "| power cut at {cuts} random moments of {runs} runs on ext4 \
         | every run resumed to the same result ({:.0} s) |",
        start.elapsed().as_secs_f64()
    );
}

/// Returns the lines of a recording in an order that does not depend on when they were written.
fn sorted_lines(recording: &Path) -> Vec<String> {
    let text = fs::read_to_string(recording).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
