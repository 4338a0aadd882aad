"""Trains a small net with Lightning, in mixed precision, with a loader's worker."""

import lightning
import torch


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(1024, 1024)

    def training_step(self, batch, index):
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def main():
    data = torch.utils.data.TensorDataset(torch.zeros(6400, 1024))
    loader = torch.utils.data.DataLoader(data, 64, num_workers=1)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Net(), loader)


if __name__ == "__main__":
    main()
