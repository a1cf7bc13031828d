//! The cache of compiled rules, a folder that only this user can write to. A file's name is the
//! hash of everything that decides its code.

use std::fs::{DirBuilder, File};
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use wasmtime::Engine;

/// Largest file that is read, bytes. A rule with an interpreter has 19 MB, and 32 MB of code.
const MAX_BYTES: u64 = 1 << 30;

/// A cache folder. It is opened once, so that a folder that replaces it later is not read.
pub(crate) struct Cache {
    folder: OwnedFd,
    path: PathBuf,
}

impl Cache {
    /// Opens the folder, and creates it if necessary. The error is the reason why it cannot be used
    /// or trusted.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| error.to_string())?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| error.to_string())?;
        let stat = rustix::fs::fstat(&folder).map_err(|error| error.to_string())?;
        check_rights(&stat)?;
        // No other user could write to it so far. From now on, none can read it either.
        rustix::fs::fchmod(&folder, Mode::RWXU).map_err(|error| error.to_string())?;
        Ok(Self { folder, path: path.to_owned() })
    }

    /// Returns the code under this key; `None` if there is no file.
    pub(crate) fn read(&self, key: &blake3::Hash) -> Result<Option<Vec<u8>>, String> {
        // Without NONBLOCK, opening a pipe would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.folder, name(key), flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            other => other.map_err(|error| error.to_string())?,
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("it is no regular file".into());
        }
        check_rights(&stat)?;
        let mut bytes = Vec::new();
        File::from(file)
            .take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| error.to_string())?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("it has more than {MAX_BYTES} bytes"));
        }
        let (hash, code) = bytes.split_at_checked(blake3::OUT_LEN).ok_or("it is cut off")?;
        if blake3::keyed_hash(key.as_bytes(), code) != *hash {
            return Err("its hash does not match".into());
        }
        Ok(Some(bytes.split_off(blake3::OUT_LEN)))
    }

    /// Writes the code under this key. A file is a hash, then the code. The hash covers the code
    /// and the key, so that a damaged file, or one of another rule or engine, is detected.
    pub(crate) fn write(&self, key: &blake3::Hash, code: &[u8]) -> std::io::Result<()> {
        let mut unfinished = tempfile::NamedTempFile::new_in(&self.path)?;
        unfinished.write_all(blake3::keyed_hash(key.as_bytes(), code).as_bytes())?;
        unfinished.write_all(code)?;
        unfinished.persist(self.file(key))?;
        Ok(())
    }

    /// Returns the path of this key's file, for messages.
    pub(crate) fn file(&self, key: &blake3::Hash) -> PathBuf {
        self.path.join(name(key))
    }
}

fn name(key: &blake3::Hash) -> String {
    format!("{}.cwasm", key.to_hex())
}

/// Fails unless the file belongs to this user and no other user can write to it.
fn check_rights(stat: &Stat) -> Result<(), String> {
    let owner = stat.st_uid;
    let user = rustix::process::geteuid().as_raw();
    if owner != user {
        return Err(format!("it belongs to user {owner}, not to user {user}"));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(format!("others can write to it (mode {:o})", stat.st_mode & 0o777));
    }
    Ok(())
}

/// Returns the hash of the plugin and of everything else that its machine code depends on: the
/// engine's version, settings and processor.
pub(crate) fn key(engine: &Engine, plugin: &blake3::Hash) -> blake3::Hash {
    struct Blake3(blake3::Hasher);
    impl Hasher for Blake3 {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            unreachable!("the 32 bytes of the hasher are read instead")
        }
    }
    let mut hasher = Blake3(blake3::Hasher::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.update(plugin.as_bytes());
    hasher.0.finalize()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use wasmtime::{Config, Inlining, OptLevel};

    use super::*;
    use crate::Limits;
    use crate::engine::engine;

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("made/rules")).unwrap();
        (folder, cache)
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn compiled_code_is_read_only_under_own_key() {
        let (_folder, cache) = cache();
        let [ours, theirs] = [b"ours", b"ther"].map(|plugin| blake3::hash(plugin));
        assert_eq!(cache.read(&ours), Ok(None));
        cache.write(&ours, b"code").unwrap();
        cache.write(&theirs, b"other code").unwrap();
        assert_eq!(cache.read(&ours), Ok(Some(b"code".to_vec())));

        let file = std::fs::read(cache.file(&ours)).unwrap();
        let mut flipped = file.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let unkeyed = [blake3::hash(b"code").as_bytes(), &b"code"[..]].concat();
        let other_rule = std::fs::read(cache.file(&theirs)).unwrap();
        for (poison, reason) in [
            (&flipped[..], "its hash does not match"),
            (&unkeyed[..], "its hash does not match"),
            (&other_rule[..], "its hash does not match"),
            (&file[..20], "it is cut off"),
            (&[], "it is cut off"),
        ] {
            std::fs::write(cache.file(&ours), poison).unwrap();
            assert_eq!(cache.read(&ours).unwrap_err(), reason);
        }
        cache.write(&ours, b"code").unwrap();
        assert_eq!(cache.read(&ours), Ok(Some(b"code".to_vec())), "written again");
    }

    #[test]
    fn writable_or_linked_cache_files_are_rejected() {
        let (folder, cache) = cache();
        let key = blake3::hash(b"ours");
        let file = cache.file(&key);
        let put = |make: &dyn Fn()| {
            let _ = std::fs::remove_file(&file); // there may be none
            make();
            cache.read(&key).unwrap_err()
        };
        cache.write(&key, b"code").unwrap();
        let elsewhere = folder.path().join("elsewhere");
        std::fs::copy(&file, &elsewhere).unwrap();
        let link = put(&|| symlink(&elsewhere, &file).unwrap());
        assert!(link.contains("symbolic links"), "{link}");
        let endless = put(&|| symlink("/dev/zero", &file).unwrap());
        assert!(endless.contains("symbolic links"), "{endless}");
        let pipe = put(&|| {
            rustix::fs::mknodat(rustix::fs::CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                .unwrap();
        });
        assert_eq!(pipe, "it is no regular file");
        let open = put(&|| {
            std::fs::copy(&elsewhere, &file).unwrap();
            set_mode(&file, 0o666);
        });
        assert_eq!(open, "others can write to it (mode 666)");

        set_mode(&cache.path, 0o770);
        assert_eq!(Cache::open(&cache.path).err().unwrap(), "others can write to it (mode 770)");
        set_mode(&cache.path, 0o755);
        Cache::open(&cache.path).unwrap();
        assert_eq!(std::fs::metadata(&cache.path).unwrap().permissions().mode() & 0o777, 0o700);
        let linked = folder.path().join("linked");
        symlink(&cache.path, &linked).unwrap();
        assert!(Cache::open(&linked).is_err(), "another user may have made the link");
        assert!(Cache::open(&elsewhere).is_err(), "a file");
    }

    #[test]
    fn cache_key_depends_on_engine_settings() {
        let plugin = blake3::hash(b"ours");
        let here = engine(&Limits::default(), Inlining::No).unwrap();
        let other = Engine::new(Config::new().cranelift_opt_level(OptLevel::None)).unwrap();
        assert_ne!(key(&here, &plugin), key(&other, &plugin));
        assert_eq!(
            key(&here, &plugin),
            key(&engine(&Limits::default(), Inlining::No).unwrap(), &plugin)
        );
    }
}
