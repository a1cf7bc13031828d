//! What Python calls a tokenizer → the host's.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use corver_pretrained::{Decoded, TextTokenizer};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rayon::prelude::*;

use crate::{error, thread};

/// The tokenizer that was given last: reading one takes as long as scoring a batch.
#[derive(Default)]
pub struct Tokenizers(Mutex<Option<Last>>);

struct Last {
    given: Py<PyAny>,
    /// Of its vocabulary; tokens may be added to an object.
    length: Option<usize>,
    read: Arc<TextTokenizer>,
}

impl Tokenizers {
    /// The host's tokenizer for a Hugging Face tokenizer, a `tokenizers.Tokenizer`, or the path of
    /// a tokenizer.json or of its folder.
    pub fn of(&self, given: &Bound<'_, PyAny>) -> PyResult<Arc<TextTokenizer>> {
        let py = given.py();
        let length = given.len().ok();
        if let Some(read) = self.known(given, length)? {
            return Ok(read);
        }
        let source = Source::of(given)?;
        let read = thread::without_gil(py, move || source.read())?.map_err(error::corver)?;
        let read = Arc::new(read);
        *self.last() =
            Some(Last { given: given.clone().unbind(), length, read: Arc::clone(&read) });
        Ok(read)
    }

    fn known(
        &self,
        given: &Bound<'_, PyAny>,
        length: Option<usize>,
    ) -> PyResult<Option<Arc<TextTokenizer>>> {
        let Some((last, read)) = self
            .last()
            .as_ref()
            .filter(|last| last.length == length)
            .map(|last| (last.given.clone_ref(given.py()), Arc::clone(&last.read)))
        else {
            return Ok(None);
        };
        let same = last.is(given)
            || (given.is_instance_of::<PyString>() && last.bind(given.py()).eq(given)?);
        Ok(same.then_some(read))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Last>> {
        // The value is replaced whole, so a panic elsewhere cannot have broken it.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A text, and the characters of each token: `[T]`, None for a token that decoding leaves out.
type Text = (String, Vec<Option<(usize, usize)>>);

/// What `Scorer.score` makes of token ids, for a server that is to score them.
#[pyfunction]
pub fn decode(
    py: Python<'_>,
    completion_ids: Vec<Vec<u32>>,
    tokenizer: &Bound<'_, PyAny>,
) -> PyResult<Vec<Text>> {
    static TOKENIZERS: LazyLock<Tokenizers> = LazyLock::new(Tokenizers::default);
    let tokenizer = TOKENIZERS.of(tokenizer)?;
    let decode = move || {
        let decoded =
            completion_ids.par_iter().map(|ids| tokenizer.decode_with_spans(ids).map(text));
        decoded.collect::<Result<Vec<Text>, _>>()
    };
    thread::without_gil(py, decode)?.map_err(|error| error::corver(error.into()))
}

fn text(Decoded { text, token_spans }: Decoded) -> Text {
    let spans = token_spans.into_iter().map(|span| span.map(|span| (span.start, span.end)));
    (text, spans.collect())
}

/// Where a tokenizer is read from.
enum Source {
    Path(PathBuf),
    /// The text of a tokenizer.json, and whether decoding cleans up.
    Json(String, bool),
}

impl Source {
    fn of(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(path) = given.extract() {
            return Ok(Self::Path(path));
        }
        // A tokenizer of `transformers` has that of `tokenizers` inside.
        let inner = given.getattr("backend_tokenizer").unwrap_or_else(|_| given.clone());
        let Ok(json) = inner.call_method0("to_str") else {
            let told = format!(
                "the tokenizer is a {}; give a fast Hugging Face tokenizer, or the path of a tokenizer.json or of its folder",
                given.get_type().qualname()?
            );
            return Err(PyTypeError::new_err(told));
        };
        let cleans_up = given
            .getattr("clean_up_tokenization_spaces")
            .is_ok_and(|set| set.is_truthy().unwrap_or(false));
        Ok(Self::Json(json.extract()?, cleans_up))
    }

    fn read(self) -> anyhow::Result<TextTokenizer> {
        Ok(match self {
            Self::Path(path) => TextTokenizer::open(&path)?,
            Self::Json(json, cleans_up) => {
                TextTokenizer::from_json(&json, cleans_up, Path::new("the tokenizer"))?
            }
        })
    }
}
