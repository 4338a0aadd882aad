"""Programs of fit_programs.py that train models of transformers."""

import torch
from fit_nets import LowRank
from fit_training import (
    GPU,
    adamw,
    normal,
    programs,
    sgd,
    steps,
    train,
    train_and_keep,
    whole,
)

PROGRAMS, program = programs()


def pretrained(model, config, dtype=None, **options):
    """The model of that name, with weights of no value: those cost the CPU's time only."""
    import transformers
    from transformers.initialization import no_init_weights

    config = getattr(transformers, config)(**options)
    with no_init_weights():
        net = getattr(transformers, model)(config)
    net.tie_weights()  # which belongs to what was left out
    return net.to(GPU, dtype) if dtype else net.to(GPU)


def causal(name, dtype=None, **options):
    return pretrained(f"{name}ForCausalLM", f"{name}Config", dtype, **options).train()


def gpt2(**options):
    return pretrained("GPT2LMHeadModel", "GPT2Config", **options).train()


def tokens_and_labels(vocabulary, batch, length):
    tokens = whole(vocabulary, batch, length)
    return {"input_ids": tokens, "labels": tokens}


def next_token(vocabulary, batch, length):
    """The loss of a language model on random tokens."""

    def loss_of(model):
        return model(**tokens_and_labels(vocabulary, batch, length)).loss

    return loss_of


LLAMA = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
}


@program
def gpt2_fp32():
    model = gpt2()
    train_and_keep(model, adamw(model), lambda: tokens_and_labels(50257, 8, 512))


@program
def gpt2_fp16():
    train(gpt2(n_layer=6), next_token(50257, 8, 512), amp=torch.float16)


@program
def gpt2_bf16():
    train(gpt2(), next_token(50257, 16, 512), amp=torch.bfloat16)


@program
def gpt2_accumulation():
    train(gpt2(n_layer=6), next_token(50257, 4, 512), accumulate=4)


@program
def gpt2_gradscaler():
    train(gpt2(n_layer=6), next_token(50257, 4, 768), amp=torch.float16, scaler=True)


@program
def gpt2_capturable_adamw():
    model = gpt2(n_layer=6)
    train(model, next_token(50257, 4, 512), adamw(model, capturable=True))


@program
def gpt2_loop_adamw():
    model = gpt2(n_layer=6)
    train(model, next_token(50257, 4, 512), adamw(model, foreach=False))


@program
def gpt2_sgd():
    model = gpt2(n_layer=6)
    train(model, next_token(50257, 4, 512), sgd(model))


@program
def gpt2_clipped():
    model = gpt2(n_layer=6)
    optimizer = adamw(model)
    for _ in steps():
        next_token(50257, 4, 512)(model).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program
def llama_bf16():
    model = causal(
        "Llama",
        torch.bfloat16,
        **{**LLAMA, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 12},
    )
    train_and_keep(model, adamw(model), lambda: tokens_and_labels(32000, 4, 1024))


@program
def llama_eager_attn():
    model = causal("Llama", torch.bfloat16, **LLAMA, attn_implementation="eager")
    train(model, next_token(32000, 4, 1024))


@program
def llama_fused_adamw():
    model = causal("Llama", torch.bfloat16, **LLAMA)
    train(model, next_token(32000, 4, 512), adamw(model, fused=True))


@program
def llama_checkpointed():
    model = causal("Llama", torch.bfloat16, **LLAMA)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    train(model, next_token(32000, 4, 1024))


@program
def llama_lora():
    model = causal("Llama", torch.bfloat16, **LLAMA).requires_grad_(False)
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.q_proj = LowRank(attention.q_proj, 16)
        attention.v_proj = LowRank(attention.v_proj, 16)
    trained = [p for p in model.parameters() if p.requires_grad]
    train(model, next_token(32000, 4, 1024), torch.optim.AdamW(trained, lr=1e-4))


@program
def llama_adafactor():
    model = causal("Llama", torch.bfloat16, **LLAMA)
    train(
        model, next_token(32000, 4, 512), torch.optim.Adafactor(model.parameters(), lr=1e-3)
    )


@program
def llama_master_weights():
    """bfloat16 with a float32 copy that the optimizer has, as older trainers do it."""
    model = causal("Llama", torch.bfloat16, **LLAMA)
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-4)
    for _ in steps():
        next_token(32000, 4, 512)(model).backward()
        for master, weight in zip(masters, model.parameters(), strict=True):
            master.grad = weight.grad.float()
            weight.grad = None
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for master, weight in zip(masters, model.parameters(), strict=True):
                weight.copy_(master)


@program
def mistral_bf16():
    model = causal("Mistral", torch.bfloat16, **LLAMA, sliding_window=256)
    train(model, next_token(32000, 4, 768))


@program
def mixtral():
    """A mixture of experts: which tokens an expert gets depends on values."""
    model = causal(
        "Mixtral",
        torch.bfloat16,
        **{**LLAMA, "num_hidden_layers": 4, "intermediate_size": 1408},
        num_local_experts=8,
        num_experts_per_tok=2,
    )
    train(model, next_token(32000, 4, 512))


@program
def qwen2():
    model = causal("Qwen2", **{**LLAMA, "vocab_size": 151936}, tie_word_embeddings=True)
    train(model, next_token(151936, 2, 512), amp=torch.bfloat16)


@program
def opt():
    model = causal(
        "OPT",
        hidden_size=768,
        ffn_dim=3072,
        num_hidden_layers=8,
        num_attention_heads=12,
        word_embed_proj_dim=768,
    )
    train(model, next_token(50272, 4, 512))


@program
def bert():
    model = pretrained("BertForMaskedLM", "BertConfig").train()
    train(model, next_token(30522, 16, 256))


@program
def roberta_gradscaler():
    model = pretrained(
        "RobertaForSequenceClassification", "RobertaConfig", num_labels=4
    ).train()

    def loss_of(model):
        return model(input_ids=whole(50000, 32, 128), labels=whole(4, 32)).loss

    train(model, loss_of, amp=torch.float16, scaler=True)


@program
def distilbert_inference():
    model = pretrained("DistilBertModel", "DistilBertConfig").eval()
    with torch.inference_mode():
        for _ in steps():
            model(input_ids=whole(30522, 128, 256)).last_hidden_state.mean(1).cpu()


@program
def t5():
    model = pretrained(
        "T5ForConditionalGeneration",
        "T5Config",
        d_model=512,
        num_layers=4,
        vocab_size=32000,
        decoder_start_token_id=0,
    ).train()

    def loss_of(model):
        return model(input_ids=whole(32000, 8, 256), labels=whole(32000, 8, 128)).loss

    train(model, loss_of)


@program
def bart():
    model = pretrained(
        "BartForConditionalGeneration",
        "BartConfig",
        d_model=768,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
    ).train()

    def loss_of(model):
        return model(input_ids=whole(50000, 8, 256), labels=whole(50000, 8, 128)).loss

    train(model, loss_of, amp=torch.bfloat16)


@program
def whisper():
    model = pretrained(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        d_model=256,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    ).train()

    def loss_of(model):
        features = normal(4, 80, 3000)
        return model(input_features=features, labels=whole(50000, 4, 64)).loss

    train(model, loss_of)


@program
def clip():
    model = pretrained("CLIPModel", "CLIPConfig").train()

    def loss_of(model):
        tokens, images = whole(49000, 16, 64), normal(16, 3, 224, 224)
        return model(input_ids=tokens, pixel_values=images, return_loss=True).loss

    train(model, loss_of, amp=torch.bfloat16)


@program
def vit():
    model = pretrained("ViTForImageClassification", "ViTConfig", num_labels=1000).train()
    train(model, images_of(32, 224), amp=torch.bfloat16)


@program
def swin():
    model = pretrained("SwinForImageClassification", "SwinConfig", num_labels=1000).train()
    train(model, images_of(16, 224))


def images_of(batch, side, labels=1000):
    """The loss of a classifier of images, of transformers."""

    def loss_of(model):
        images = normal(batch, 3, side, side)
        return model(pixel_values=images, labels=whole(labels, batch)).loss

    return loss_of
