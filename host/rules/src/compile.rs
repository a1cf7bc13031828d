//! From a component to machine code, once: the result is kept in a folder, named by everything that decides it.
#![allow(unsafe_code, reason = "compiled code is loaded back from the cache")]

use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use wasmtime::component::Component;
use wasmtime::{Config, Engine, OptLevel};

use crate::Limits;

/// The step of the clock that stops slow calls.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// An engine with a clock of its own, which stops with it.
pub(crate) fn engine(limits: &Limits) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config.cranelift_opt_level(OptLevel::Speed).epoch_interruption(true).max_wasm_stack(limits.stack_bytes);
    let engine = Engine::new(&config)?;
    let clock = engine.weak();
    std::thread::Builder::new().name("rule clock".into()).spawn(move || {
        while let Some(engine) = clock.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(TICK);
        }
    })?;
    Ok(engine)
}

/// Compiles `wasm`, or loads what an earlier call made of it. A cache file that is damaged or not writable costs time,
/// not the run: it is warned about and compiled again.
pub(crate) fn component(engine: &Engine, wasm: &[u8], cache: Option<&Path>) -> wasmtime::Result<Component> {
    let Some(folder) = cache else { return Component::from_binary(engine, wasm) };
    let file = folder.join(key(engine, wasm)).with_extension("cwasm");
    match load(engine, &file) {
        Ok(Some(component)) => return Ok(component),
        Ok(None) => {}
        Err(reason) => {
            tracing::warn!(file = %file.display(), %reason, "compiling again: the cached code is not usable")
        }
    }
    let component = Component::from_binary(engine, wasm)?;
    if let Err(error) = component.serialize().map(|code| store(&file, &code))? {
        tracing::warn!(file = %file.display(), %error, "the compiled rule could not be cached");
    }
    Ok(component)
}

/// Hash of the component and of everything that the engine's code depends on: its version, settings and processor.
fn key(engine: &Engine, wasm: &[u8]) -> String {
    struct Blake3(blake3::Hasher);
    impl Hasher for Blake3 {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            unreachable!("only the whole hash is read")
        }
    }
    let mut hasher = Blake3(blake3::Hasher::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.update(wasm);
    hasher.0.finalize().to_hex().to_string()
}

/// A cache file is the hash of the code, then the code.
fn load(engine: &Engine, file: &Path) -> Result<Option<Component>, String> {
    let bytes = match std::fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| error.to_string())?,
    };
    let (hash, code) = bytes.split_at_checked(blake3::OUT_LEN).ok_or("it is cut off")?;
    if blake3::hash(code) != *hash {
        return Err("its hash does not match".into());
    }
    // SAFETY: the bytes are what `Component::serialize` gave a host of this version and settings (the file's name), and
    // are unchanged since (their hash). Whoever can forge both can write to the user's own folder, and needs no rule.
    unsafe { Component::deserialize(engine, code) }.map(Some).map_err(|error| format!("{error:#}"))
}

fn store(file: &Path, code: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut unfinished = tempfile::NamedTempFile::new_in(folder)?;
    unfinished.write_all(blake3::hash(code).as_bytes())?;
    unfinished.write_all(code)?;
    unfinished.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WASM: &[u8] = b"\0asm\x0d\0\x01\0"; // the empty component

    #[test]
    fn a_damaged_cache_file_is_never_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(&Limits::default()).unwrap();
        component(&engine, WASM, Some(folder.path())).unwrap();
        let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        assert!(load(&engine, &file).unwrap().is_some());

        let whole = std::fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        std::fs::write(&file, &flipped).unwrap();
        assert_eq!(load(&engine, &file).err().unwrap(), "its hash does not match");
        std::fs::write(&file, &whole[..20]).unwrap();
        assert_eq!(load(&engine, &file).err().unwrap(), "it is cut off");

        component(&engine, WASM, Some(folder.path())).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), whole, "it is written again");
    }

    #[test]
    fn other_settings_have_another_key() {
        let here = engine(&Limits::default()).unwrap();
        let other = Engine::new(Config::new().cranelift_opt_level(OptLevel::None)).unwrap();
        assert_ne!(key(&here, WASM), key(&other, WASM));
        assert_eq!(key(&here, WASM), key(&engine(&Limits::default()).unwrap(), WASM));
    }
}
