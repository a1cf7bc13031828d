//! From a component to machine code, once: the result is kept in a folder, named by everything that decides it.
#![allow(unsafe_code, reason = "compiled code is loaded back from the cache")]

use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::Path;

use wasmtime::component::Component;
use wasmtime::{Config, Enabled, Engine, Inlining, OptLevel, PoolingAllocationConfig};

use crate::limits::{INSTANCES, MEMORIES, TABLES, TICK, max_instances};
use crate::{Limits, RuleError};

/// Files up to this size, in bytes, are compiled with small functions put into their callers: calls get 6 % cheaper, for
/// 2.4 times the compile time. A rule in Rust is a third of it, one that brings an interpreter ten times larger.
pub(crate) const INLINED: usize = 1 << 20;

/// An engine with a clock of its own, which stops with it.
pub(crate) fn engine(limits: &Limits, inlining: Inlining) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .compiler_inlining(inlining)
        .epoch_interruption(true)
        .max_wasm_stack(limits.stack_bytes)
        .allocation_strategy(pool())
        // A fault is reported in the rule's own words. Addresses in its machine code would not help, and cost load time.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .native_unwind_info(false);
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

/// Memory is mapped once and then reset: what an instance wrote is undone before the next one. The sizes here are address
/// space; what a rule may use of it is [`Limits`]' to say.
fn pool() -> PoolingAllocationConfig {
    let instances = max_instances();
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances * INSTANCES as u32)
        .total_memories(instances * MEMORIES as u32)
        .total_tables(instances * TABLES as u32)
        .max_memories_per_module(MEMORIES as u32)
        .max_tables_per_module(TABLES as u32)
        .table_elements(MAX_TABLE_ELEMENTS)
        .max_core_instance_size(16 << 20)
        .max_component_instance_size(64 << 20)
        // The pages that a call wrote are cleared and kept, which is cheaper than new ones, as far as a call of a shipped
        // rule reaches.
        .linear_memory_keep_resident(4 << 20)
        .pagemap_scan(Enabled::Auto)
        .table_keep_resident(1 << 12);
    pool
}

/// What a valid module can declare at most.
const MAX_TABLE_ELEMENTS: usize = 10_000_000;

/// What `compile` makes of the plugin with this hash, or made of it earlier. A cache file that is damaged or not
/// writable costs time, not the run: it is warned about and made again.
pub(crate) fn cached(
    engine: &Engine,
    plugin: &blake3::Hash,
    folder: &Path,
    compile: impl FnOnce() -> Result<Component, RuleError>,
) -> Result<Component, RuleError> {
    let key = key(engine, plugin);
    let file = folder.join(key.to_hex().as_str()).with_extension("cwasm");
    match load(engine, &file, &key) {
        Ok(Some(component)) => return Ok(component),
        Ok(None) => {}
        Err(reason) => {
            tracing::warn!(file = %file.display(), %reason, "compiling again: the cached code is not usable")
        }
    }
    let component = compile()?;
    let code = component.serialize().map_err(|error| format!("{error:#}"));
    if let Err(reason) = code.and_then(|code| store(&file, &key, &code).map_err(|error| error.to_string())) {
        tracing::warn!(file = %file.display(), %reason, "the compiled rule could not be cached");
    }
    Ok(component)
}

/// Hash of the plugin and of everything that the engine's code depends on: its version, settings and processor.
fn key(engine: &Engine, plugin: &blake3::Hash) -> blake3::Hash {
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
    hasher.0.update(plugin.as_bytes());
    hasher.0.finalize()
}

/// A cache file is a hash, then the code. The hash is of both code and key, so that a file of another rule, or of
/// another engine, is not taken for this one's.
fn load(engine: &Engine, file: &Path, key: &blake3::Hash) -> Result<Option<Component>, String> {
    let bytes = match std::fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| error.to_string())?,
    };
    let (hash, code) = bytes.split_at_checked(blake3::OUT_LEN).ok_or("it is cut off")?;
    if blake3::keyed_hash(key.as_bytes(), code) != *hash {
        return Err("its hash does not match".into());
    }
    // SAFETY: the bytes are what `Component::serialize` gave a host of this version and settings for this plugin, and
    // are unchanged since (their hash). Whoever can forge that can write to the user's own folder, and needs no rule.
    unsafe { Component::deserialize(engine, code) }.map(Some).map_err(|error| format!("{error:#}"))
}

fn store(file: &Path, key: &blake3::Hash, code: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut unfinished = tempfile::NamedTempFile::new_in(folder)?;
    unfinished.write_all(blake3::keyed_hash(key.as_bytes(), code).as_bytes())?;
    unfinished.write_all(code)?;
    unfinished.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0"; // the empty component

    fn get(engine: &Engine, plugin: &[u8], folder: &Path) {
        cached(engine, &blake3::hash(plugin), folder, || Ok(Component::from_binary(engine, EMPTY).unwrap())).unwrap();
    }

    #[test]
    fn a_poisoned_cache_file_is_never_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(&Limits::default(), Inlining::No).unwrap();
        let key = |plugin: &[u8]| key(&engine, &blake3::hash(plugin));
        let file = |plugin: &[u8]| folder.path().join(key(plugin).to_hex().as_str()).with_extension("cwasm");
        get(&engine, b"ours", folder.path());
        get(&engine, b"theirs", folder.path());
        assert!(load(&engine, &file(b"ours"), &key(b"ours")).unwrap().is_some());

        let whole = std::fs::read(file(b"ours")).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let unkeyed = [blake3::hash(&whole[32..]).as_bytes(), &whole[32..]].concat();
        let of_another_rule = std::fs::read(file(b"theirs")).unwrap();
        for (poison, reason) in [
            (&flipped[..], "its hash does not match"),
            (&unkeyed[..], "its hash does not match"),
            (&of_another_rule[..], "its hash does not match"),
            (&whole[..20], "it is cut off"),
            (&[], "it is cut off"),
        ] {
            std::fs::write(file(b"ours"), poison).unwrap();
            assert_eq!(load(&engine, &file(b"ours"), &key(b"ours")).err().unwrap(), reason);
            get(&engine, b"ours", folder.path());
            assert_eq!(std::fs::read(file(b"ours")).unwrap(), whole, "it is written again");
        }
    }

    #[test]
    fn a_cache_that_cannot_be_written_costs_time_alone() {
        let folder = tempfile::tempdir().unwrap();
        let occupied = folder.path().join("rules");
        std::fs::write(&occupied, "a file").unwrap();
        get(&engine(&Limits::default(), Inlining::No).unwrap(), b"ours", &occupied);
    }

    #[test]
    fn other_settings_have_another_key() {
        let plugin = blake3::hash(b"ours");
        let here = engine(&Limits::default(), Inlining::No).unwrap();
        let other = Engine::new(Config::new().cranelift_opt_level(OptLevel::None)).unwrap();
        assert_ne!(key(&here, &plugin), key(&other, &plugin));
        assert_eq!(key(&here, &plugin), key(&engine(&Limits::default(), Inlining::No).unwrap(), &plugin));
    }
}
