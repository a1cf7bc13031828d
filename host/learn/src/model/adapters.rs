//! The adapters of a model: adding, loading, saving, merging and switching them.

use std::path::Path;

use corver_core::LoraSettings;
use corver_pretrained::PretrainedError;
use tch::{Kind, Tensor};

use crate::error::{LearnError, Result};
use crate::layer::Layer;
use crate::linear::LinearLayer;
use crate::lora::{self, Adapter, AdapterCheckpoint};
use crate::model::Model;

impl Model {
    /// Adds new adapters to every projection. They change no output until they are trained.
    ///
    /// # Errors
    /// Fails if the rank is 0, or the device has no memory.
    pub fn add_lora(&mut self, lora: &LoraSettings, seed: u64) -> Result<()> {
        if let Some(problem) = corver_settings::check("update.lora", lora).into_iter().next() {
            return Err(problem.into());
        }
        let device = self.device;
        for linear in self.linears_mut() {
            let (out, input) = linear.weight.size2()?;
            linear.adapter = Some(Adapter::random(&linear.name, out, input, lora, seed, device)?);
        }
        self.lora = Some(*lora);
        Ok(())
    }

    /// Replaces the model's adapters with those of a folder in PEFT's layout.
    ///
    /// # Errors
    /// Fails if a file cannot be read, holds another kind of adapter, or does not fit this model.
    pub fn load_adapter(&mut self, folder: &Path) -> Result<()> {
        let mut checkpoint = AdapterCheckpoint::read(folder, self.device)?;
        let settings = checkpoint.config.settings;
        let mut loaded = Vec::new();
        for linear in self.linears_mut() {
            let (out, input) = linear.weight.size2()?;
            loaded.push(checkpoint.take(&linear.name, out, input)?);
        }
        checkpoint.finish()?;
        for (linear, adapter) in self.linears_mut().zip(loaded) {
            linear.adapter = adapter;
        }
        self.lora = Some(settings);
        Ok(())
    }

    /// Writes the adapters in PEFT's layout, in f32; creates the folder if needed.
    ///
    /// # Errors
    /// Fails if the model has no adapters, or a file cannot be written.
    pub fn save_adapter(&self, folder: &Path) -> Result<()> {
        self.save_adapter_in(folder, Kind::Float)
    }

    /// Writes the adapters as numbers of a kind. See [`Self::save_adapter`].
    pub(crate) fn save_adapter_in(&self, folder: &Path, kind: Kind) -> Result<()> {
        let Some(settings) = &self.lora else {
            return Err(LearnError::Input {
                what: "model",
                expected: "adapters".into(),
                got: "none".into(),
            });
        };
        std::fs::create_dir_all(folder).map_err(PretrainedError::io("create", folder))?;
        let mut adapters = Vec::new();
        for linear in self.linears() {
            if let Some(adapter) = &linear.adapter {
                adapters.push((linear.name.clone(), adapter));
            }
        }
        lora::write(folder, &adapters, settings, self.base_name.as_deref(), kind)
    }

    /// Adds the adapters to the weights and removes them.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn merge_lora(&mut self) -> Result<()> {
        let _guard = tch::no_grad_guard();
        for linear in self.linears_mut() {
            if let Some(adapter) = linear.adapter.take() {
                // In place, because the weight is a part of its group's.
                let merged =
                    lora::merged_weight(&linear.weight, &adapter.a, &adapter.b, adapter.scaling)?;
                linear.weight.f_copy_(&merged)?;
            }
        }
        self.lora = None;
        Ok(())
    }

    /// Makes a copy of the adapters the reference, instead of the base model.
    ///
    /// # Errors
    /// Fails if the device has no room for another adapter.
    pub fn freeze_as_reference(&mut self) -> Result<()> {
        for linear in self.linears_mut() {
            if let Some(adapter) = &mut linear.adapter {
                adapter.freeze_as_reference()?;
            }
        }
        Ok(())
    }

    /// Turns the adapters on or off, and returns their previous state. Without them the model is
    /// the base model, or the reference of [`Self::freeze_as_reference`].
    pub fn set_adapters(&mut self, on: bool) -> bool {
        let mut were_on = false;
        for linear in self.linears_mut() {
            if let Some(adapter) = &mut linear.adapter {
                were_on |= adapter.on;
                adapter.on = on;
            }
        }
        were_on
    }

    /// Returns the settings of the adapters; `None` if the model has none.
    #[must_use]
    pub fn lora(&self) -> Option<&LoraSettings> {
        self.lora.as_ref()
    }

    /// Returns the adapter weights with their PEFT names.
    #[must_use]
    pub fn lora_parameters(&self) -> Vec<(String, &Tensor)> {
        let mut parameters = Vec::new();
        for linear in self.linears() {
            if let Some(adapter) = &linear.adapter {
                parameters.push((lora::peft_name(&linear.name, "A"), &adapter.a));
                parameters.push((lora::peft_name(&linear.name, "B"), &adapter.b));
            }
        }
        parameters
    }

    fn linears(&self) -> impl Iterator<Item = &LinearLayer> {
        self.layers.iter().flat_map(Layer::linears)
    }

    fn linears_mut(&mut self) -> impl Iterator<Item = &mut LinearLayer> {
        self.layers.iter_mut().flat_map(Layer::linears_mut)
    }

    /// Converts the adapters once for many forward passes, until the guard is dropped. Until then
    /// changes of the adapters have no effect, and no gradient reaches them.
    pub(crate) fn freeze_adapters(&self) -> Result<FrozenAdapters<'_>> {
        // The guard comes first, so that a failure half-way thaws the layers too.
        let frozen = FrozenAdapters(self);
        for layer in &self.layers {
            layer.freeze_adapters()?;
        }
        Ok(frozen)
    }
}

/// A guard of [`Model::freeze_adapters`].
pub(crate) struct FrozenAdapters<'m>(&'m Model);

impl Drop for FrozenAdapters<'_> {
    fn drop(&mut self) {
        for layer in &self.0.layers {
            layer.thaw_adapters();
        }
    }
}
