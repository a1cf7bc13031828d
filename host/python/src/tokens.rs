//! Python's tokenizers → the host's.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use corver_pretrained::{CleanUp, Decoded, TextTokenizer};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rayon::prelude::*;

use crate::{error, thread};

/// Cache of the last tokenizer, since reading one takes as long as scoring a batch.
#[derive(Default)]
pub struct TokenizerCache(Mutex<Option<CachedTokenizer>>);

struct CachedTokenizer {
    /// Object or path that the caller passed.
    key: Py<PyAny>,
    /// Size of the vocabulary, to which tokens may be added later; `None` for a path.
    length: Option<usize>,
    tokenizer: Arc<TextTokenizer>,
}

impl TokenizerCache {
    /// Returns the host's tokenizer for a Hugging Face tokenizer, a `tokenizers.Tokenizer`, or the
    /// path of a tokenizer.json or of its folder.
    pub fn get(&self, key: &Bound<'_, PyAny>) -> PyResult<Arc<TextTokenizer>> {
        let length = key.len().ok();
        if let Some(tokenizer) = self.cached(key, length)? {
            return Ok(tokenizer);
        }
        let source = TokenizerSource::new(key)?;
        let read = thread::without_gil(key.py(), move || source.read())?;
        let tokenizer = Arc::new(read.map_err(error::corver)?);
        *self.lock() = Some(CachedTokenizer {
            key: key.clone().unbind(),
            length,
            tokenizer: Arc::clone(&tokenizer),
        });
        Ok(tokenizer)
    }

    fn cached(
        &self,
        key: &Bound<'_, PyAny>,
        length: Option<usize>,
    ) -> PyResult<Option<Arc<TextTokenizer>>> {
        let py = key.py();
        let (cached_key, tokenizer) = match &*self.lock() {
            Some(cached) if cached.length == length => {
                (cached.key.clone_ref(py), Arc::clone(&cached.tokenizer))
            }
            _ => return Ok(None),
        };
        // The lock is released: `eq` runs Python code, which may call the scorer.
        let is_same = cached_key.is(key)
            || (key.is_instance_of::<PyString>() && cached_key.bind(py).eq(key)?);
        Ok(is_same.then_some(tokenizer))
    }

    fn lock(&self) -> MutexGuard<'_, Option<CachedTokenizer>> {
        // The value is replaced by one assignment, so a panic cannot leave it half-written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Text, and the characters of each token: `[T]`; `None` for a token that decoding leaves out.
type TextWithSpans = (String, Vec<Option<(usize, usize)>>);

/// Texts and token spans of token ids, as `Scorer.score` decodes them, for a server to score.
#[pyfunction]
pub fn decode_with_spans(
    py: Python<'_>,
    completion_ids: Vec<Vec<u32>>,
    tokenizer: &Bound<'_, PyAny>,
) -> PyResult<Vec<TextWithSpans>> {
    static TOKENIZERS: LazyLock<TokenizerCache> = LazyLock::new(TokenizerCache::default);
    let tokenizer = TOKENIZERS.get(tokenizer)?;
    let result = thread::without_gil(py, move || {
        completion_ids
            .par_iter()
            .map(|ids| tokenizer.decode_with_spans(ids).map(text_with_spans))
            .collect::<Result<Vec<TextWithSpans>, _>>()
    })?;
    result.map_err(|error| error::corver(error.into()))
}

fn text_with_spans(Decoded { text, token_spans }: Decoded) -> TextWithSpans {
    let spans = token_spans.into_iter().map(|span| span.map(|span| (span.start, span.end)));
    (text, spans.collect())
}

/// Location of a tokenizer.
enum TokenizerSource {
    Path(PathBuf),
    /// Text of a tokenizer.json.
    Json {
        json: String,
        clean_up: CleanUp,
    },
}

impl TokenizerSource {
    fn new(tokenizer: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(path) = tokenizer.extract() {
            return Ok(Self::Path(path));
        }
        // A tokenizer of `transformers` wraps one of `tokenizers`.
        let backend = tokenizer.getattr("backend_tokenizer").unwrap_or_else(|_| tokenizer.clone());
        let Ok(json) = backend.call_method0("to_str") else {
            return Err(PyTypeError::new_err(format!(
                "the tokenizer is a {}; give a fast Hugging Face tokenizer, or the path of a \
                 tokenizer.json or of its folder",
                tokenizer.get_type().qualname()?
            )));
        };
        let cleans_up = tokenizer
            .getattr("clean_up_tokenization_spaces")
            .is_ok_and(|setting| setting.is_truthy().unwrap_or(false));
        let clean_up = if cleans_up { CleanUp::ExceptBpe } else { CleanUp::Never };
        Ok(Self::Json { json: json.extract()?, clean_up })
    }

    fn read(self) -> anyhow::Result<TextTokenizer> {
        Ok(match self {
            Self::Path(path) => TextTokenizer::open(&path)?,
            Self::Json { json, clean_up } => {
                TextTokenizer::from_json(&json, clean_up, Path::new("the tokenizer"))?
            }
        })
    }
}
