"""Programs of fit_programs.py with convolutions: of transformers, of fit_nets.py, and of
torchvision, where that is installed."""

import torch
import torch.nn.functional as F
from fit_nets import UNet, mobilenet, resnet, vgg, waveform_net
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
from fit_transformers import images_of, pretrained
from torch import nn

PROGRAMS, program = programs()

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
    for _ in steps():
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
