//! Runs the model and answers several requests side by side: each in turn gets one token.

use std::sync::Arc;

use shared::{
    clock::{Clock, random_bytes},
    error::{ApiError, Code},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::spawn_blocking,
};

use crate::{
    answer::{self, AnswerEvent, Request},
    reader::Model,
};

/// Number of requests that are read or answered side by side; others wait. Each may need 9.4 MB for keys and values.
const MAX_ANSWERS: usize = 32;

pub struct Engine {
    pub(crate) model: Model,
    /// Source of the time, and of randomness for ids and for requests without a seed.
    clock: Arc<dyn Clock>,
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

/// Events of a request. If they are dropped, the engine stops answering the request.
pub(crate) type Events = mpsc::UnboundedReceiver<Result<AnswerEvent, ApiError>>;

impl Engine {
    /// Loads the shipped model, which takes a few milliseconds. While `max_requests` requests are answered or wait,
    /// further ones are refused.
    pub fn start(clock: Arc<dyn Clock>, max_requests: usize) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            model: Model::shipped()?,
            clock,
            requests: Arc::new(Semaphore::new(max_requests)),
            answers: Arc::new(Semaphore::new(MAX_ANSWERS)),
        }))
    }

    /// Takes a permit for a request before doing any work for it.
    pub(crate) fn admit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let full = |_| ApiError::new(Code::Overloaded, "The model has too many requests in flight.");
        Arc::clone(&self.requests).try_acquire_owned().map_err(full)
    }

    /// Waits for a permit to read and answer a request. Permits limit memory and threads.
    pub(crate) async fn wait(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.answers).acquire_owned().await.map_err(|_| ApiError::internal())
    }

    /// Answers a request alongside the others. The permits are held until the answer ends.
    pub(crate) fn submit(self: &Arc<Self>, permits: [OwnedSemaphorePermit; 2], request: Request) -> Events {
        // Unbounded, so that a slow reader delays no other request. The context limits the number of events.
        let (events, received) = mpsc::unbounded_channel();
        let engine = Arc::clone(self);
        spawn_blocking(move || {
            answer::write(&engine.model, request, &events);
            drop(permits);
        });
        received
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.now().seconds()
    }

    pub(crate) fn random(&self) -> u64 {
        u64::from_le_bytes(random_bytes(&*self.clock))
    }
}

#[cfg(test)]
mod tests {
    use local_model_transformer::{KvCache, Transformer};
    use serde::Deserialize;

    use crate::{
        prompt::{self, Message, Tool},
        tokenizer::Tokenizer,
    };

    /// A prompt with PyTorch's greedy answer.
    #[derive(Deserialize)]
    struct Recorded {
        messages: Vec<Message>,
        #[serde(default)]
        tools: Vec<Tool>,
        prompt: String,
        prompt_tokens: usize,
        answer_tokens: Vec<u32>,
    }

    #[test]
    fn prompts_are_those_of_the_training_and_the_likeliest_tokens_those_of_pytorch() {
        let (transformer, tokenizer) = (Transformer::shipped().unwrap(), Tokenizer::shipped().unwrap());
        let recorded: Vec<Recorded> = serde_json::from_str(include_str!("../tests/reference.json")).unwrap();
        for case in recorded {
            let tokens = prompt::encode(&tokenizer, &case.messages, &case.tools).unwrap().tokens;
            let bytes = tokens.iter().flat_map(|&token| &tokenizer.bytes[token as usize]).copied().collect();
            assert_eq!(String::from_utf8(bytes).as_ref(), Ok(&case.prompt));
            assert_eq!(tokens.len(), case.prompt_tokens);
            let mut cache = KvCache::default();
            let mut logits = transformer.forward(&tokens, &mut cache);
            for token in case.answer_tokens {
                assert!(logits.iter().all(|&logit| logit <= logits[token as usize]), "{}", case.prompt);
                logits = transformer.forward(&[token], &mut cache);
            }
        }
    }
}
