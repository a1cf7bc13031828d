//! The Makefile and the scripts of set-up and builds, in folders of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Writes a program, with the folder that it is in.
fn write_program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Copies the scripts of set-up into a folder.
fn copy_setup(folder: &Path) {
    let copies = folder.join("host/setup");
    fs::create_dir_all(&copies).unwrap();
    for entry in fs::read_dir(repository().join("host/setup")).unwrap() {
        let script = entry.unwrap();
        fs::copy(script.path(), copies.join(script.file_name())).unwrap();
    }
}

/// Runs a script of a folder, with the programs in the folder's `bin/` before those of the machine.
fn run(folder: &Path, script: &str) -> Output {
    let path = std::env::var("PATH").unwrap();
    Command::new("bash")
        .arg(script)
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", folder.join("bin").display()))
        .output()
        .unwrap()
}

/// Makes a target `tested` with this recipe, in the Makefile of the repository.
fn make(recipe: &str) -> Output {
    Command::new("make")
        .args(["--eval", &format!("tested: ; @{recipe}"), "tested"])
        .current_dir(repository())
        .env("CARGO_TARGET_DIR", "/nowhere")
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .unwrap()
}

#[test]
fn recipe_fails_if_a_command_of_its_pipe_fails() {
    assert!(make("true | cat").status.success());
    assert!(!make("false | cat").status.success());
}

#[test]
fn recipes_build_into_the_folder_whose_programs_they_run() {
    let target = String::from_utf8(make("echo $$CARGO_TARGET_DIR").stdout).unwrap();
    assert_eq!(Path::new(target.trim()), repository().join("target"));
}

#[test]
fn rules_that_are_not_built_fail_the_build_and_removed_ones_disappear() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    let built = plugins.join("target/wasm/wasm32-unknown-unknown/release");
    let dist = plugins.join("dist");
    for new in [&built, &dist, &plugins.join("a-b"), &plugins.join("c")] {
        fs::create_dir_all(new).unwrap();
    }
    for rule in ["a-b", "c"] {
        fs::write(plugins.join(rule).join("Cargo.toml"), "").unwrap();
    }
    write_program(&plugins.join("cargo-wasm.sh"), "#!/bin/sh\n");
    fs::copy(repository().join("plugins/build.sh"), plugins.join("build.sh")).unwrap();
    fs::write(dist.join("a-b.wasm"), "old").unwrap();
    fs::write(dist.join("removed.wasm"), "old").unwrap();
    fs::write(plugins.join("target/installed"), "removed\n").unwrap();
    fs::write(dist.join("own.wasm"), "new").unwrap(); // the user's
    fs::write(built.join("c.wasm"), "new").unwrap();
    assert!(!run(folder.path(), "plugins/build.sh").status.success());

    fs::write(built.join("a_b.wasm"), "new").unwrap();
    for _ in 0..2 {
        let output = run(folder.path(), "plugins/build.sh");
        assert!(output.status.success(), "{output:?}");
    }
    let mut rules = Vec::new();
    for entry in fs::read_dir(&dist).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        rules.push(path.file_name().unwrap().to_owned());
    }
    rules.sort();
    assert_eq!(rules, ["a-b.wasm", "c.wasm", "own.wasm"]);

    fs::remove_dir_all(plugins.join("c")).unwrap();
    assert!(run(folder.path(), "plugins/build.sh").status.success());
    assert!(!dist.join("c.wasm").exists());
}

#[test]
fn concurrent_set_ups_run_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    copy_setup(folder.path());
    let python = "#!/bin/sh\n\
                  case \"$2 $3\" in\n\
                  'venv '*) mkdir -p \"$3/bin\" && cp \"$0\" \"$3/bin/python\" ;;\n\
                  'pip install') sleep 0.5 ;;\n\
                  esac\n";
    write_program(&folder.path().join("bin/python3"), python);
    let set_up = || run(folder.path(), "host/setup/plots.sh");
    let outputs = std::thread::scope(|scope| {
        let other = scope.spawn(set_up);
        [set_up(), other.join().unwrap()]
    });
    let mut stderr = String::new();
    for output in outputs {
        assert!(output.status.success(), "{output:?}");
        stderr += &String::from_utf8_lossy(&output.stderr);
    }
    assert_eq!(stderr.matches("setup: matplotlib").count(), 1, "{stderr}");
}

/// A build does not wait for the packages of the trainers, which take long.
#[test]
fn scripts_of_set_up_do_not_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    copy_setup(folder.path());
    // Two installations succeed together only.
    let python = "#!/bin/sh\n\
                  case \"$2 $3\" in\n\
                  'venv '*) mkdir -p \"$3/bin\" && cp \"$0\" \"$3/bin/python\" ;;\n\
                  'pip install')\n\
                  touch \"$0.installs\"\n\
                  for attempt in $(seq 200); do\n\
                  [ -e .deps/plots/bin/python.installs ] && \
                  [ -e .deps/wheel/bin/python.installs ] && exit\n\
                  sleep 0.1\n\
                  done\n\
                  exit 1 ;;\n\
                  esac\n";
    write_program(&folder.path().join("bin/python3"), python);
    let outputs = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(folder.path(), "host/setup/wheel.sh"));
        [run(folder.path(), "host/setup/plots.sh"), other.join().unwrap()]
    });
    for output in outputs {
        assert!(output.status.success(), "{output:?}");
    }
}

/// `apt-get update` fails while another one runs, and so does `install` without a timeout.
#[test]
fn concurrent_set_ups_install_packages_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    copy_setup(folder.path());
    let apt_get = "#!/bin/sh\n\
                   mkdir \"$0.running\" || exit 1\n\
                   sleep 0.3\n\
                   rmdir \"$0.running\"\n\
                   case \"$*\" in\n\
                   'update -qq' | 'install -o DPkg::Lock::Timeout='*' gcc') ;;\n\
                   *) exit 1 ;;\n\
                   esac\n";
    write_program(&folder.path().join("bin/apt-get"), apt_get);
    write_program(&folder.path().join("bin/sudo"), "#!/bin/sh\nexec \"$@\"\n");
    fs::write(folder.path().join("gcc.sh"), ". host/setup/apt.sh gcc\n").unwrap();
    let set_up = || run(folder.path(), "gcc.sh");
    let outputs = std::thread::scope(|scope| {
        let other = scope.spawn(set_up);
        [set_up(), other.join().unwrap()]
    });
    for output in outputs {
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

/// A program whose list is not read to its end fails.
#[test]
fn set_up_reads_lists_of_targets_and_gpus_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    copy_setup(folder.path());
    let bin = folder.path().join("bin");
    let rustup = "#!/bin/sh\n\
                  [ \"$2\" = list ] || exit 1\n\
                  echo wasm32-unknown-unknown; sleep 0.2; echo x86_64-unknown-linux-gnu\n";
    write_program(&bin.join("rustup"), rustup);
    write_program(&bin.join("nvidia-smi"), "#!/bin/sh\necho GPU 0; sleep 0.2; echo GPU 1\n");
    for installer in ["apt-get", "sudo"] {
        write_program(&bin.join(installer), "#!/bin/sh\nexit 1\n");
    }
    let layout = "set -euo pipefail\n\
                  . host/setup/gpu.sh\n\
                  choose_layout '' '' libtorch CORVER_TORCH\n\
                  echo $layout\n";
    fs::write(folder.path().join("layout.sh"), layout).unwrap();
    assert_eq!(run(folder.path(), "layout.sh").stdout, b"cuda\n");
    let output = run(folder.path(), "host/setup/wasm.sh");
    assert!(output.status.success(), "{output:?}");
    let note = fs::read_to_string(folder.path().join(".deps/wasm-toolchain")).unwrap();
    assert_eq!(note, "rustup\n");
}

#[test]
fn gpu_kit_runs_the_programs_of_its_archive() {
    let folder = tempfile::tempdir().unwrap();
    let kit = folder.path();
    fs::copy(repository().join("host/gpu-kit/run.sh"), kit.join("run.sh")).unwrap();
    let python = "#!/bin/sh\n\
                  [ \"$1\" = -c ] && echo /torch 2.11.0 || cat >/dev/null\n";
    write_program(&kit.join("bin/python3"), python);
    write_program(&kit.join("content/at_scale"), "#!/bin/sh\n");
    fs::write(kit.join("kit.tar.xz"), "half of an archive").unwrap();
    assert!(!run(kit, "run.sh").status.success());
    for version in ["1", "2"] {
        let program = format!("#!/bin/sh\necho {version}\n");
        write_program(&kit.join("content/corver-host"), &program);
        // Not compressed, since xz may be missing here; tar detects what it reads.
        let pack = ["-cf", "kit.tar.xz", "-C", "content", "."];
        assert!(Command::new("tar").args(pack).current_dir(kit).status().unwrap().success());
        let output = run(kit, "run.sh");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(kit.join("results/doctor.txt")).unwrap().trim(), version);
    }
}
