"""Training programs whose memory `memlab fit` is compared with a GPU's.

    python bench/fit_programs.py --list
    python bench/fit_programs.py NAME               # one line of JSON
    python bench/fit_programs.py --all > FILE       # one line a program, on this GPU

A line has the peaks of torch's allocator, and used_outside, the bytes of the device that
are used beside what torch reserves.  --all runs each in a process of its own, in turn; the
programs that need torchvision are left out where that is not installed.

Nothing depends on values, so that a program takes the same memory wherever it runs.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import sys
import traceback
import warnings

import torch
import torch.nn.functional as F
from fit_nets import GPTBlocks, LowRank, UNet, mobilenet, resnet, vgg, waveform_net
from torch import nn

GPU = "cuda"
STATS = (
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "active_bytes.all.peak",
    "requested_bytes.all.peak",
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
    "segment.all.peak",
    "allocation.all.allocated",
    "inactive_split_bytes.all.peak",
)
PROGRAMS = {}


def program(function):
    """Adds FUNCTION to the programs, under its name."""
    PROGRAMS[function.__name__] = function
    return function


def normal(*shape):
    return torch.randn(*shape, device=GPU)


def whole(below, *shape):
    return torch.randint(0, below, shape, device=GPU)


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **options)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, **options)


def train(model, loss_of, optimizer=None, steps=3, amp=None, accumulate=1, scaler=False):
    """STEPS steps with gradients of ACCUMULATE batches each; AMP: the type of autocast."""
    optimizer = optimizer or adamw(model)
    if scaler:
        # A step is left out where a gradient overflows, as those of unset weights do.
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
    scaler = torch.amp.GradScaler("cuda", enabled=scaler)
    for step in range(steps * accumulate):
        with torch.autocast("cuda", dtype=amp, enabled=amp is not None):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        if (step + 1) % accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
    loss.item()


def train_and_keep(model, optimizer, batch_of):
    """Three steps as many loops are written: a step's outputs live until the next one's."""
    for _ in range(3):
        outputs = model(**batch_of())
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()


# --- transformers --------------------------------------------------------------------


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
    for _ in range(3):
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
    for _ in range(3):
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
        for _ in range(3):
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


# --- Other attention -----------------------------------------------------------------


@program
def seq2seq():
    def loss_of(model):
        return model(normal(16, 128, 512), normal(16, 96, 512)).square().mean()

    train(nn.Transformer(512, 8, 4, 4, batch_first=True).to(GPU), loss_of)


@program
def gpt_blocks_checkpointed():
    model = GPTBlocks(layers=12, width=768, heads=12, vocabulary=32000, length=1024)

    def loss_of(model):
        tokens = whole(32000, 8, 1024)
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    train(model.to(GPU), loss_of, amp=torch.bfloat16)


@program
def distilled():
    """A student that learns from a teacher that is not trained."""
    teacher, student = gpt2().eval().requires_grad_(False), gpt2(n_layer=4)

    def loss_of(model):
        tokens = whole(50257, 4, 512)
        with torch.no_grad():
            aim = teacher(input_ids=tokens).logits.softmax(-1)
        return F.cross_entropy(
            model(input_ids=tokens).logits.flatten(0, 1), aim.flatten(0, 1)
        )

    train(student, loss_of)


@program
def averaged_weights():
    model = gpt2(n_layer=6)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    optimizer = adamw(model)
    for _ in range(3):
        next_token(50257, 4, 512)(model).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(model)


@program
def mlp_cuda_graph():
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(GPU)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = normal(256, 1024)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()


@program
def recommender():
    """Large tables, of which a step needs few rows."""
    tables = nn.ModuleList(nn.EmbeddingBag(200_000, 64, mode="sum") for _ in range(8))
    model = nn.ModuleDict(
        {
            "tables": tables,
            "top": nn.Sequential(nn.Linear(8 * 64, 512), nn.ReLU(), nn.Linear(512, 1)),
        }
    ).to(GPU)

    def loss_of(model):
        rows = [table(whole(200_000, 4096, 4)) for table in model["tables"]]
        clicks = model["top"](torch.cat(rows, 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(clicks, torch.zeros_like(clicks))

    train(model, loss_of, torch.optim.Adagrad(model.parameters(), lr=0.01))


@program
def loader_workers():
    """Batches from worker processes, through pinned memory."""
    data = torch.utils.data.TensorDataset(torch.zeros(256, 784), torch.zeros(256).long())
    loader = torch.utils.data.DataLoader(data, 64, num_workers=2, pin_memory=True)
    model = nn.Sequential(nn.Linear(784, 4096), nn.GELU(), nn.Linear(4096, 10)).to(GPU)
    optimizer = adamw(model)
    for x, y in loader:
        x, y = x.to(GPU, non_blocking=True), y.to(GPU, non_blocking=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


# --- Recurrent -----------------------------------------------------------------------


@program
def lstm():
    model = nn.ModuleDict(
        {
            "words": nn.Embedding(20000, 512),
            "cell": nn.LSTM(512, 1024, num_layers=2, batch_first=True),
            "head": nn.Linear(1024, 20000),
        }
    ).to(GPU)

    def loss_of(model):
        tokens = whole(20000, 32, 128)
        hidden, _ = model["cell"](model["words"](tokens))
        return F.cross_entropy(model["head"](hidden).flatten(0, 1), tokens.flatten())

    train(model, loss_of)


# --- Convolutions --------------------------------------------------------------------


def classified(batch, side, labels=1000, layout=torch.contiguous_format):
    """The loss of a classifier of images."""

    def loss_of(model):
        images = normal(batch, 3, side, side).contiguous(memory_format=layout)
        return F.cross_entropy(model(images).float(), whole(labels, batch))

    return loss_of


def train_images(model, loss_of, **options):
    model = model.to(GPU)
    train(model, loss_of, sgd(model), **options)


def hf_images(name, batch, **options):
    model = pretrained(
        f"{name}ForImageClassification", f"{name}Config", num_labels=1000, **options
    ).train()
    train(model, images_of(batch, 224), sgd(model))


@program
def hf_resnet50():
    model = pretrained("ResNetForImageClassification", "ResNetConfig", num_labels=1000)

    def images_and_labels():
        return {"pixel_values": normal(32, 3, 224, 224), "labels": whole(1000, 32)}

    train_and_keep(model.train(), sgd(model), images_and_labels)


@program
def hf_resnet101():
    hf_images("ResNet", 16, depths=[3, 4, 23, 3])


@program
def hf_regnet():
    hf_images("RegNet", 32)


@program
def hf_convnext():
    hf_images("ConvNext", 16)


@program
def hf_mobilenet_v2():
    hf_images("MobileNetV2", 32)


@program
def resnet18():
    train_images(resnet(2, 2, 2, 2), classified(64, 224))


@program
def resnet34_bf16():
    train_images(resnet(3, 4, 6, 3), classified(64, 224), amp=torch.bfloat16)


@program
def resnet18_channels_last():
    layout = torch.channels_last
    train_images(
        resnet(2, 2, 2, 2).to(memory_format=layout),
        classified(64, 224, layout=layout),
        amp=torch.bfloat16,
    )


@program
def vgg11():
    train_images(vgg(64, "M", 128, "M", 256, 256, "M", 512, 512, "M"), classified(32, 192))


@program
def mobilenet_fp16():
    train_images(mobilenet(), classified(64, 224), amp=torch.float16, scaler=True)


@program
def unet_amp():
    train(UNet(128).to(GPU), noise_of(8, 64), amp=torch.float16)


@program
def diffusion_unet():
    train(UNet(96).to(GPU), noise_of(16, 64), amp=torch.bfloat16)


@program
def unet_fp32():
    train(UNet(64).to(GPU), noise_of(8, 96))


def noise_of(batch, side):
    """The loss of a net that predicts noise."""

    def loss_of(model):
        shape = (batch, 3, side, side)
        return F.mse_loss(model(normal(*shape)).float(), normal(*shape))

    return loss_of


@program
def conv3d():
    model = nn.Sequential(
        nn.Conv3d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).to(GPU)
    train(model, lambda model: model(normal(4, 1, 64, 64, 64)).square().mean())


@program
def audio_conv1d():
    def loss_of(model):
        return F.cross_entropy(model(normal(32, 1, 16000)), whole(35, 32))

    train(waveform_net(35).to(GPU), loss_of)


@program
def autoencoder():
    def up(inner, outer):
        return [nn.ConvTranspose2d(inner, outer, 4, 2, 1), nn.ReLU()]

    def down(inner, outer):
        return [nn.Conv2d(inner, outer, 4, 2, 1), nn.ReLU()]

    model = nn.Sequential(
        *down(3, 64), *down(64, 128), *down(128, 256), *up(256, 128), *up(128, 64),
        nn.ConvTranspose2d(64, 3, 4, 2, 1),
    ).to(GPU)  # fmt: skip
    train(model, noise_of(32, 128))


@program
def gan():
    """Two nets and two optimizers that take turns."""

    def up(inner, outer):
        return [
            nn.ConvTranspose2d(inner, outer, 4, 2, 1),
            nn.BatchNorm2d(outer),
            nn.ReLU(),
        ]

    def down(inner, outer):
        return [nn.Conv2d(inner, outer, 4, 2, 1), nn.LeakyReLU(0.2)]

    maker = nn.Sequential(
        nn.ConvTranspose2d(128, 512, 4), nn.ReLU(), *up(512, 256), *up(256, 128),
        *up(128, 64), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh(),
    ).to(GPU)  # fmt: skip
    judge = nn.Sequential(
        *down(3, 64), *down(64, 128), *down(128, 256), *down(256, 512),
        nn.Conv2d(512, 1, 4), nn.Flatten(),
    ).to(GPU)  # fmt: skip
    made_by, judged_by = adamw(maker), adamw(judge)
    for _ in range(3):
        real, fake = normal(64, 3, 64, 64), maker(normal(64, 128, 1, 1))
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        judged_by.zero_grad(set_to_none=True)
        loss.backward()
        judged_by.step()
        made_by.zero_grad(set_to_none=True)
        F.softplus(-judge(fake)).mean().backward()
        made_by.step()
    loss.item()


# --- torchvision, where that is installed ---------------------------------------------


def vision(name, batch=32, amp=None, layout=torch.contiguous_format):
    import torchvision

    model = getattr(torchvision.models, name)(weights=None).to(GPU)
    train_images(
        model.to(memory_format=layout), classified(batch, 224, layout=layout), amp=amp
    )


@program
def tv_resnet50_amp_cl():
    vision("resnet50", amp=torch.bfloat16, layout=torch.channels_last)


@program
def tv_efficientnet_b0():
    vision("efficientnet_b0")


@program
def tv_convnext_tiny():
    vision("convnext_tiny", batch=16)


@program
def tv_vit_b_16_amp():
    vision("vit_b_16", amp=torch.bfloat16)


# --- The command line ------------------------------------------------------------------


def run(name):
    """Runs a program; what it took, as a dict."""
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)
    error = None
    try:
        PROGRAMS[name]()
    except torch.OutOfMemoryError:
        # memlab fit is to see it.
        if "MEMLAB_FIT" in os.environ:
            raise
        error = "out of memory"
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    return {
        "name": name,
        "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "error": error,
        "used_outside": total - free - stats["reserved_bytes.all.current"],
        "stats": {key: stats[key] for key in STATS},
    }


def run_apart(name):
    """Prints the line of a program, run in a forked child; its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    with contextlib.suppress(BaseException):
        signal.alarm(300)
        try:
            print(json.dumps(run(name)), flush=True)
            status = 0
        except BaseException:
            traceback.print_exc()
    os._exit(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="*", help="programs")
    parser.add_argument("--list", action="store_true", help="their names")
    parser.add_argument("--all", action="store_true", help="all, each in its own process")
    options = parser.parse_args()
    if options.list:
        print(*PROGRAMS)
        return 0
    names = list(PROGRAMS) if options.all else options.name
    if unknown := [name for name in names if name not in PROGRAMS]:
        parser.error(f"no such programs: {', '.join(unknown)}")
    if importlib.util.find_spec("torchvision") is None and options.all:
        names = [name for name in names if not name.startswith("tv_")]
        print("left out, as torchvision is not installed: tv_*", file=sys.stderr)
    if len(names) == 1:
        print(json.dumps(run(names[0])))
        return 0
    if importlib.util.find_spec("transformers"):
        import transformers.initialization  # noqa: F401  # once, for all children
    failed = [name for name in names if run_apart(name)]
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
