"use strict";
// A page opened as a file may start no worker: the search then runs in a hidden frame.
if (location.protocol === "file:") {
    window.Worker = class extends EventTarget {
        constructor(url) {
            super();
            this.frame = document.createElement("iframe");
            this.frame.hidden = true;
            document.body.append(this.frame);
            const inside = this.frame.contentWindow;
            inside.document.open();
            inside.document.write("<!DOCTYPE html><title>search</title>");
            inside.document.close();
            inside.postMessage = (data) => {
                const event = new MessageEvent("message", { data });
                this.dispatchEvent(event);
                if (this.onmessage) {
                    this.onmessage(event);
                }
            };
            inside.importScripts = (...urls) => urls.reduce(
                (before, next) => before.then(() => load(inside, next)),
                Promise.resolve(),
            );
            this.ready = load(inside, url);
        }

        postMessage(data) {
            this.ready.then(() => {
                const inside = this.frame.contentWindow;
                inside.dispatchEvent(new inside.MessageEvent("message", { data }));
            });
        }

        terminate() {
            this.frame.remove();
        }
    };
}

function load(inside, url) {
    return new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        inside.document.body.append(script);
    });
}
